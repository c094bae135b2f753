#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "registry/data/data_file.h"
#include "registry/language/codec.h"

namespace trainrun {

/// How a file's bytes are characters. Names and meanings are Python's.
enum class TextEncoding { kUtf8, kLatin1, kCp1252, kUtf16, kUtf16Le, kUtf16Be };
template <>
struct Words<TextEncoding> {
  static constexpr std::array kWords = {"utf-8", "latin-1", "cp1252", "utf-16", "utf-16-le", "utf-16-be"};
};
constexpr const char* kEncodingHelp =
    "the file's character encoding: utf-8, latin-1 (ISO 8859-1), cp1252 (Windows), utf-16 (with a byte-order mark), "
    "utf-16-le or utf-16-be (without one)";

// What bounds a text, so that no file fills the memory.
constexpr size_t kLongestLine = size_t{1} << 28;  // bytes, 256 MiB: of a line, or of a record of CSV
constexpr size_t kMostColumns = size_t{1} << 20;

/// Reads a file of text, plain or gzip, from its start to its end, as UTF-8. A byte-order mark is skipped. What is
/// not of the encoding is a DataError that names file, line and byte, and what to write instead.
class TextFile {
 public:
  /// `encoding`: null: UTF-8, and no parameter says otherwise.
  TextFile(std::string path, std::optional<TextEncoding> encoding);
  const std::string& path() const { return file_.path(); }
  /// Reads up to `size` bytes and returns how many: fewer only at the end of the file.
  size_t read(char* to, size_t size);

 private:
  bool refill();
  void begin();
  size_t decode(bool is_last);
  size_t decode_utf8(bool is_last);
  size_t decode_bytes();
  size_t decode_utf16(bool is_last);
  void count_lines(std::string_view bytes);
  std::string named_byte(size_t at);
  void refuse_zeros(size_t size);
  [[noreturn]] void fail(size_t at, const std::string& fault, const std::string& advice);
  [[noreturn]] void fail_at_start(const std::string& fault, const std::string& encoding) const;

  DataFile file_;
  TextEncoding encoding_;
  bool has_parameter_;
  bool has_begun_ = false;
  bool has_ended_ = false;
  std::string raw_;   // bytes that are not decoded yet
  std::string text_;  // decoded; from at_ on not given yet
  size_t at_ = 0;
  uint64_t offset_ = 0;  // of raw_ in the file
  int64_t line_ = 1;     // in which raw_ begins
  uint64_t line_start_ = 0;
};

/// Where a file is read byte by byte as characters (latin-1, cp1252) that is UTF-8 throughout, with characters of several
/// bytes: says so, with the line of the first and what to write. "": it is not, or cannot be read.
std::string encoding_note(const std::string& path, TextEncoding encoding);

/// The text that `text` would be, had its file been read as the UTF-8 that it is, and not byte by byte: "Zürich" of
/// "ZÃ¼rich"; "": it was read as what it is.
std::string read_as_utf8(std::string_view text);

/// The lines of a file, a piece of it in memory at a time. Throws DataError, also where one is longer than
/// kLongestLine.
class TextLines {
 public:
  TextLines(std::string path, std::optional<TextEncoding> encoding) : file_(std::move(path), encoding) {}
  /// The next line, with its end; false at the end of the file.
  bool next(std::string& line);
  /// Of the line given last, from 1.
  int64_t number() const { return number_; }

 private:
  bool refill();

  TextFile file_;
  std::string piece_;
  size_t at_ = 0;
  int64_t number_ = 0;
};

/// Throws DataError, which begins with `place`, where a text that no TextFile has read is not UTF-8: it could be neither
/// shown nor saved.
void require_utf8(std::string_view text, const std::string& place);

}  // namespace trainrun
