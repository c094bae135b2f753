#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

#include "registry/formats/files/descriptor.h"

namespace trainrun {

/// A file of a run's folder that grows piece by piece.
class AppendedFile {
 public:
  /// Who may read a file that is made.
  enum class Readers { kAll, kOwner };
  /// Opens the file, or makes it. Throws FileError, as every member does.
  explicit AppendedFile(std::string path, Readers readers = Readers::kAll);
  /// Appends `text` by one write, unless a signal comes between. If not all of it can be written, nothing of it stays:
  /// a piece that cannot be cut off at once is cut off before the next text comes.
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
  bool cut_off_piece();

  std::string path_;
  Readers readers_;
  std::optional<off_t> piece_at_;  // where a piece of a text begins that could not be written whole
  Descriptor file_;
};

}  // namespace trainrun
