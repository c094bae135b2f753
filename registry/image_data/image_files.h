#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

namespace trainrun {

/// Whether a file of this name is an image that can be read, by its extension.
bool is_image_name(const std::filesystem::path& path);
/// Whether a file or folder of this name belongs to a program and not to the data: it begins with a dot
/// (.ipynb_checkpoints, .git, ._1.jpg), or is @eaDir (Synology) or __MACOSX (archives made on a Mac).
bool is_hidden_name(const std::string& name);

/// The folder of this name within `root`, without a slash at its end: "." is `root` itself.
std::filesystem::path folder_within(const std::string& root, const std::string& name);
/// Whether `path` is `folder` or lies in it, by their names alone: both as `folder_within` gives them, or absolute.
bool is_within(const std::filesystem::path& path, const std::filesystem::path& folder);

/// Counts what a reader of folders passes over.
class PassedOver {
 public:
  enum Kind { kHidden, kNoImage, kNoClass, kNoMaskOfAnImage, kNoSample, kOtherSuffix, kNumKinds };
  void add(Kind kind, const std::filesystem::path& path);
  void add(const PassedOver& other);
  /// "skipped: 2 hidden files or folders (.git, …), 3 files that are not images (…)"; "" where nothing was.
  std::string text() const;

 private:
  struct Some {
    int64_t count = 0;
    std::set<std::string> names;  // the first ones, by the alphabet
  };
  void add(Kind kind, const Some& some);
  Some kinds_[kNumKinds];
};

/// What is in a folder of images, and in the folders within it.
struct ImageFiles {
  std::vector<std::string> images;  // those of each folder in the order of their names, folders in that of their paths
  /// Links that lead nowhere and images of formats that are not read, each a message that begins with the path.
  std::vector<std::string> unread;
  PassedOver passed_over;

  /// Adds what was unreadable or skipped in another folder.
  void add(const ImageFiles& other);
};
/// Hidden folders are not looked into. Throws filesystem_error.
ImageFiles images_below(const std::filesystem::path& folder);

/// Sorts a directory's entry that is neither a folder nor an image that can be read into `unread` or `passed_over`.
void add_other_entry(const std::filesystem::directory_entry& entry, ImageFiles& found);

}  // namespace trainrun
