#pragma once

#include <string>
#include <string_view>

#include "registry/files/descriptor.h"

namespace trainrun {

/// A file of a run's folder that grows piece by piece.
class AppendedFile {
 public:
  /// Opens the file, or makes it. Throws FileError, as every member does.
  explicit AppendedFile(std::string path);
  /// Appends `text` by one write, unless a signal or a full disk comes between.
  void append(std::string_view text);
  /// Whether the file was removed, with its folder say.
  bool is_removed() const;
  /// Where the file was removed, and its folder is there, opens a new and empty one; whether it did.
  bool made_anew();
  /// Opens whatever has the file's name now.
  void reopen();
  const std::string& path() const { return path_; }

 private:
  Descriptor open() const;

  std::string path_;
  Descriptor file_;
};

}  // namespace trainrun
