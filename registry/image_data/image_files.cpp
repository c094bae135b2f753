#include "registry/image_data/image_files.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>
#include <utility>

#include "registry/language/error.h"
#include "registry/language/text_forms.h"

namespace trainrun {

namespace fs = std::filesystem;

namespace {

constexpr std::array kExtensions = {".jpg", ".jpeg", ".png", ".webp", ".bmp"};
/// Other names under which images come.
constexpr std::array kOtherExtensions = {".tif", ".tiff", ".gif", ".apng", ".jpe", ".jfif", ".jp2",  ".j2k",
                                         ".jxl", ".ppm",  ".pgm", ".pbm",  ".pnm", ".heic", ".heif", ".avif",
                                         ".ico", ".tga",  ".psd", ".svg",  ".exr", ".hdr",  ".dds",  ".pcx",
                                         ".dcm", ".dng",  ".cr2", ".nef",  ".arw"};
constexpr size_t kMostKindsNamed = 3;

template <size_t N>
bool has_extension(const fs::path& path, const std::array<const char*, N>& extensions) {
  const std::string extension = lower_ascii(path.extension().string());
  return std::find(extensions.begin(), extensions.end(), extension) != extensions.end();
}

}  // namespace

bool is_image_name(const fs::path& path) { return has_extension(path, kExtensions); }

bool is_hidden_name(const std::string& name) { return name.starts_with('.') || name == "@eaDir" || name == "__MACOSX"; }

fs::path folder_within(const std::string& root, const std::string& name) {
  fs::path folder = (fs::path(root) / name).lexically_normal();
  return folder.has_filename() ? folder : folder.parent_path();
}

bool is_within(const fs::path& path, const fs::path& folder) {
  const fs::path relative = path.lexically_relative(folder);
  return !relative.empty() && *relative.begin() != "..";
}

void PassedOver::add(Kind kind, const fs::path& path) { add(kind, Some{1, {path.filename().string()}}); }

void PassedOver::add(const PassedOver& other) {
  for (int kind = 0; kind < kNumKinds; ++kind) add(static_cast<Kind>(kind), other.kinds_[kind]);
}

void PassedOver::add(Kind kind, const Some& some) {
  Some& own = kinds_[kind];
  own.count += some.count;
  own.names.insert(some.names.begin(), some.names.end());
  while (own.names.size() > kMostKindsNamed + 1) own.names.erase(std::prev(own.names.end()));
}

std::string PassedOver::text() const {
  constexpr std::array<std::array<const char*, 2>, kNumKinds> kWords = {{
      {"hidden file or folder", "hidden files or folders"},
      {"file that is not an image", "files that are not images"},
      {"image outside the classes' folders", "images outside the classes' folders"},
      {"mask that belongs to no image", "masks that belong to no image"},
      {"member of an archive that belongs to no sample", "members of archives that belong to no sample"},
      {"image whose name does not end with image_suffix", "images whose names do not end with image_suffix"},
  }};
  std::vector<std::string> parts;
  for (int kind = 0; kind < kNumKinds; ++kind) {
    const Some& some = kinds_[kind];
    if (some.count == 0) continue;
    const std::vector<std::string> names(some.names.begin(), some.names.end());
    parts.push_back(std::to_string(some.count) + " " + kWords[kind][some.count == 1 ? 0 : 1] + " (" +
                    join_first(names, kMostKindsNamed) + ")");
  }
  return parts.empty() ? "" : "skipped: " + join(parts);
}

void ImageFiles::add(const ImageFiles& other) {
  unread.insert(unread.end(), other.unread.begin(), other.unread.end());
  passed_over.add(other.passed_over);
}

void add_other_entry(const fs::directory_entry& entry, ImageFiles& found) {
  const fs::path& path = entry.path();
  std::error_code unreadable;
  if (is_hidden_name(path.filename().string())) {
    found.passed_over.add(PassedOver::kHidden, path);
  } else if (entry.is_symlink(unreadable) && !fs::exists(path, unreadable)) {
    found.unread.push_back(path.string() + ": broken link to " + fs::read_symlink(path, unreadable).string());
  } else if (has_extension(path, kOtherExtensions) && entry.is_regular_file(unreadable)) {
    found.unread.push_back(path.string() + ": images of this format are not supported, only " +
                           join({kExtensions.begin(), kExtensions.end()}));
  } else {
    found.passed_over.add(PassedOver::kNoImage, path);
  }
}

ImageFiles images_below(const fs::path& folder) {
  ImageFiles files;
  std::vector<std::pair<std::string, std::string>> found;  // of its folder, of the file
  const auto options = fs::directory_options::follow_directory_symlink;
  for (fs::recursive_directory_iterator it(folder, options), end; it != end; ++it) {
    const fs::directory_entry& entry = *it;
    const bool is_hidden = is_hidden_name(entry.path().filename().string());
    if (entry.is_directory()) {
      if (!is_hidden) continue;
      it.disable_recursion_pending();
      files.passed_over.add(PassedOver::kHidden, entry.path());
    } else if (!is_hidden && entry.is_regular_file() && is_image_name(entry.path())) {
      found.emplace_back(entry.path().parent_path().string(), entry.path().filename().string());
    } else {
      add_other_entry(entry, files);
    }
  }
  std::sort(found.begin(), found.end());
  std::sort(files.unread.begin(), files.unread.end());
  files.images.reserve(found.size());
  for (const auto& [parent, name] : found) files.images.push_back(parent + "/" + name);
  return files;
}

}  // namespace trainrun
