#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>

namespace trainrun {

/// Two file descriptors for lines (standard output and standard error) and, where the first is a terminal, one status
/// line below them that is drawn anew in place. A line printed meanwhile takes the status line's place, which moves
/// down. Thread-safe.
class Terminal {
 public:
  enum class Stream { kOut, kError };

  Terminal(int out, int error);
  /// This process's.
  static Terminal& standard();

  /// Whether the stream may have colours: it is a terminal that knows them, and NO_COLOR is not set.
  bool has_colors(Stream stream) const { return stream == Stream::kOut ? out_colors_ : error_colors_; }
  /// Whether there can be a status line: where standard output may have colours.
  bool has_status() const { return out_colors_; }
  /// Columns of the terminal, as it is now; 80 where unknown.
  size_t width() const;

  /// Prints whole lines; `text` ends with a line end.
  void print(Stream stream, const std::string& text);
  /// Draws the status line: one line, of single-width characters, no wider than `width() - 1`. "" removes it. Does
  /// nothing where there can be none.
  void set_status(std::string text);

 private:
  std::string erase_status() const;
  void write_all(int& file, std::string_view text);

  int out_;  // -1: who listened has gone away
  int error_;
  const bool out_colors_;
  const bool error_colors_;
  std::mutex mutex_;
  std::string status_;
};

}  // namespace trainrun
