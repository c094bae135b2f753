#include "registry/data/text_file.h"

#include <algorithm>

#include "registry/data/characters.h"
#include "registry/language/error.h"
#include "registry/language/hex.h"
#include "registry/language/utf8.h"

namespace trainrun {
namespace {

constexpr size_t kTextPiece = size_t{1} << 18;  // bytes read at a time
constexpr std::string_view kMark = "\xEF\xBB\xBF";
constexpr std::string_view kMarkLe = "\xFF\xFE";
constexpr std::string_view kMarkBe = "\xFE\xFF";

/// The bytes from 80 to 9F, where Windows differs from ISO 8859-1; 0: no character.
constexpr std::array<uint16_t, 32> kCp1252 = {0x20AC, 0,      0x201A, 0x0192, 0x201E, 0x2026, 0x2020, 0x2021,
                                              0x02C6, 0x2030, 0x0160, 0x2039, 0x0152, 0,      0x017D, 0,
                                              0,      0x2018, 0x2019, 0x201C, 0x201D, 0x2022, 0x2013, 0x2014,
                                              0x02DC, 0x2122, 0x0161, 0x203A, 0x0153, 0,      0x017E, 0x0178};

bool is_utf16(TextEncoding encoding) {
  return encoding == TextEncoding::kUtf16 || encoding == TextEncoding::kUtf16Le || encoding == TextEncoding::kUtf16Be;
}

std::string hexadecimal(unsigned byte) { return "0x" + hex_number(byte, 2, HexCase::kUpper); }

/// As which UTF-16 a text without a mark looks, whose every second byte is 0; "": as none.
std::string seems_utf16(std::string_view start) {
  constexpr size_t kLooked = 64;
  start = start.substr(0, std::min(start.size() / 2 * 2, kLooked));
  if (start.size() < 4) return "";
  std::array<size_t, 2> zeros{};  // at even places, at odd ones
  for (size_t i = 0; i < start.size(); ++i) zeros[i % 2] += start[i] == '\0' ? 1 : 0;
  if (zeros[0] == 0 && zeros[1] == start.size() / 2) return "utf-16-le";
  return zeros[1] == 0 && zeros[0] == start.size() / 2 ? "utf-16-be" : "";
}

/// What a file is whose first bytes are those of no text; "": nothing is known of it.
std::string other_kind(std::string_view start) {
  if (start.starts_with("PK\x03\x04"))
    return "is a ZIP archive, such as a document or a spreadsheet of an office program";
  if (start.starts_with("\xD0\xCF\x11\xE0")) return "is a document or a spreadsheet of an office program";
  if (start.starts_with("%PDF-")) return "is a PDF file";
  if (start.starts_with("\x89PNG") || start.starts_with("\xFF\xD8\xFF")) return "is a picture";
  return "";
}

}  // namespace

TextFile::TextFile(std::string path, std::optional<TextEncoding> encoding)
    : file_(std::move(path)), encoding_(encoding.value_or(TextEncoding::kUtf8)), has_parameter_(encoding.has_value()) {}

size_t TextFile::read(char* to, size_t size) {
  size_t done = 0;
  while (done < size) {
    if (at_ == text_.size() && !refill()) break;
    const size_t some = std::min(size - done, text_.size() - at_);
    text_.copy(to + done, some, at_);
    at_ += some;
    done += some;
  }
  return done;
}

/// Decodes some more; false at the end.
bool TextFile::refill() {
  text_.clear();
  at_ = 0;
  while (text_.empty() && !has_ended_) {
    const size_t before = raw_.size();
    raw_.resize(before + kTextPiece);
    const size_t count = file_.read(raw_.data() + before, kTextPiece);
    raw_.resize(before + count);
    has_ended_ = count < kTextPiece;
    if (!has_begun_) begin();
    const size_t used = decode(has_ended_);
    if (!is_utf16(encoding_)) count_lines(std::string_view(raw_).substr(0, used));
    offset_ += used;
    raw_.erase(0, used);
  }
  return !text_.empty();
}

/// Looks at the file's first bytes and passes over its mark.
void TextFile::begin() {
  has_begun_ = true;
  const std::string_view start = raw_;
  if (const std::string kind = other_kind(start); !kind.empty()) {
    throw DataError(path() + " " + kind + ", not text; save what it holds as text, or a table as a CSV file");
  }
  size_t mark = start.starts_with(kMark) ? kMark.size() : 0;
  const bool has_utf16_mark = start.starts_with(kMarkLe) || start.starts_with(kMarkBe);
  if (encoding_ == TextEncoding::kUtf8) {
    if (has_utf16_mark) fail_at_start("begins with the byte-order mark of UTF-16", "utf-16");
    const std::string seems = seems_utf16(start);
    if (!seems.empty()) fail_at_start("looks like UTF-16: every other byte is 0", seems);
  } else if (mark > 0) {
    fail_at_start("begins with the byte-order mark of UTF-8", "utf-8");
  } else if (is_utf16(encoding_)) {
    if (encoding_ == TextEncoding::kUtf16 && !start.empty()) {
      if (!has_utf16_mark) fail_at_start("does not begin with the byte-order mark of UTF-16", "utf-16-le or utf-16-be");
      encoding_ = start.starts_with(kMarkLe) ? TextEncoding::kUtf16Le : TextEncoding::kUtf16Be;
    }
    mark = start.starts_with(encoding_ == TextEncoding::kUtf16Le ? kMarkLe : kMarkBe) ? kMarkLe.size() : 0;
  }
  raw_.erase(0, mark);
  offset_ = line_start_ = mark;
}

/// Appends to `text_` what can be decoded of `raw_`, and returns how many bytes that were.
size_t TextFile::decode(bool is_last) {
  if (encoding_ == TextEncoding::kUtf8) return decode_utf8(is_last);
  return is_utf16(encoding_) ? decode_utf16(is_last) : decode_bytes();
}

size_t TextFile::decode_utf8(bool is_last) {
  const size_t valid = valid_utf8_length(raw_);
  refuse_zeros(valid);
  if (valid < raw_.size()) {
    size_t part = 0;
    utf8_length(raw_, valid, part);
    const bool is_cut = valid + part == raw_.size() && !is_last;  // its other bytes are still to be read
    const auto byte = static_cast<unsigned char>(raw_[valid]);
    const bool is_windows = byte < 0xA0 && kCp1252[(byte - 0x80U) % kCp1252.size()] != 0;
    if (!is_cut) {
      fail(valid, "is not UTF-8",
           is_windows ? "write encoding: cp1252 (or utf-16), whichever the file was saved in"
                      : "write encoding: latin-1 (or cp1252, utf-16), whichever the file was saved in");
    }
  }
  text_.assign(raw_, 0, valid);
  return valid;
}

size_t TextFile::decode_bytes() {
  refuse_zeros(raw_.size());
  text_.reserve(raw_.size() + raw_.size() / 2);
  for (size_t i = 0; i < raw_.size(); ++i) {
    const auto byte = static_cast<unsigned char>(raw_[i]);
    uint32_t character = byte;
    if (encoding_ == TextEncoding::kCp1252 && byte >= 0x80 && byte < 0xA0) character = kCp1252[byte - 0x80U];
    if (character == 0 && byte != 0) fail(i, "is not a character of cp1252", "write encoding: latin-1");
    append_utf8(text_, character);
  }
  return raw_.size();
}

size_t TextFile::decode_utf16(bool is_last) {
  const bool is_big = encoding_ == TextEncoding::kUtf16Be;
  const auto unit = [&](size_t at) {
    const auto first = static_cast<unsigned char>(raw_[at]);
    const auto second = static_cast<unsigned char>(raw_[at + 1]);
    return static_cast<uint32_t>(is_big ? first << 8 | second : second << 8 | first);
  };
  constexpr const char* kAdvice = "the file is damaged, or of another encoding";
  size_t at = 0;
  while (raw_.size() - at >= 2) {
    uint32_t character = unit(at);
    size_t size = 2;
    if (character >= 0xD800 && character < 0xE000) {
      if (raw_.size() - at < 4 && !is_last) break;
      const uint32_t low = raw_.size() - at < 4 ? 0 : unit(at + 2);
      if (character >= 0xDC00 || low < 0xDC00 || low >= 0xE000) fail(at, "is half a character of UTF-16", kAdvice);
      character = 0x10000 + ((character - 0xD800) << 10) + (low - 0xDC00);
      size = 4;
    }
    append_utf8(text_, character);
    at += size;
    if (character != '\n') continue;
    ++line_;
    line_start_ = offset_ + at;
  }
  if (is_last && at < raw_.size()) fail(at, "is half a character of UTF-16", kAdvice);
  return at;
}

/// Of bytes from the beginning of `raw_`.
void TextFile::count_lines(std::string_view bytes) {
  const size_t last = bytes.rfind('\n');
  if (last == std::string_view::npos) return;
  line_ += std::count(bytes.begin(), bytes.end(), '\n');
  line_start_ = offset_ + last + 1;
}

/// The byte at `at` of `raw_`: "a.txt:3: byte 5 of the line, 0xFC at offset 77 of the text".
std::string TextFile::named_byte(size_t at) {
  if (!is_utf16(encoding_)) count_lines(std::string_view(raw_).substr(0, at));
  const auto byte = static_cast<unsigned char>(raw_[at]);
  return path() + ":" + std::to_string(line_) + ": byte " + std::to_string(offset_ + at - line_start_ + 1) +
         " of the line, " + hexadecimal(byte) + " at offset " + std::to_string(offset_ + at) + " of the text";
}

void TextFile::fail(size_t at, const std::string& fault, const std::string& advice) {
  throw DataError(named_byte(at) + ", " + fault + "; " + (has_parameter_ ? advice : "convert the file to UTF-8"));
}

/// Of the first `size` bytes of `raw_`: hardly a text begins with a byte of 0 among its first ones, but most other files
/// do. Further on, U+0000 is a character like others.
void TextFile::refuse_zeros(size_t size) {
  constexpr size_t kLookedAt = 512;
  if (offset_ > 0) return;
  const size_t zero = std::string_view(raw_).substr(0, std::min(size, kLookedAt)).find('\0');
  if (zero == std::string::npos) return;
  throw DataError(named_byte(zero) + ", is in no text; the file is of another kind, or damaged");
}

void TextFile::fail_at_start(const std::string& fault, const std::string& encoding) const {
  throw DataError(path() + ":1: " + fault + "; " +
                  (has_parameter_ ? "write encoding: " + encoding : "convert the file to UTF-8"));
}

std::string encoding_note(const std::string& path, TextEncoding encoding) {
  if (encoding != TextEncoding::kLatin1 && encoding != TextEncoding::kCp1252) return "";
  int64_t line = 0;  // of the first character of several bytes
  try {
    TextFile file(path, std::nullopt);  // which refuses what is not UTF-8
    std::string piece(kTextPiece, '\0');
    int64_t lines = 1;
    while (const size_t count = file.read(piece.data(), piece.size())) {
      const std::string_view text = std::string_view(piece).substr(0, count);
      const auto first = std::find_if(text.begin(), text.end(), [](char byte) { return (byte & 0x80) != 0; });
      if (line == 0 && first != text.end()) line = lines + std::count(text.begin(), first, '\n');
      if (line == 0) lines += std::count(text.begin(), text.end(), '\n');
    }
  } catch (const DataError&) {
    return "";  // it is another encoding, or a fault that is said where the file is read
  }
  if (line == 0) return "";
  const char* word = Words<TextEncoding>::kWords[static_cast<size_t>(encoding)];
  return path + ":" + std::to_string(line) + ": is read as " + word +
         ", but the whole file is UTF-8, whose characters of several bytes come out wrong; write encoding: utf-8";
}

std::string read_as_utf8(std::string_view text) {
  std::string bytes;
  for (size_t at = 0; at < text.size();) {
    const uint32_t character = next_code_point(text, at);
    const auto* windows = std::find(kCp1252.begin(), kCp1252.end(), character);
    if (character != 0 && windows != kCp1252.end()) {
      bytes += static_cast<char>(0x80 + (windows - kCp1252.begin()));
    } else if (character < 0x100) {
      bytes += static_cast<char>(character);
    } else {
      return "";
    }
  }
  return bytes != text && valid_utf8_length(bytes) == bytes.size() ? bytes : "";
}

bool TextLines::next(std::string& line) {
  line.clear();
  while (true) {
    const size_t end = piece_.find('\n', at_);
    const size_t count = (end == std::string::npos ? piece_.size() : end + 1) - at_;
    line.append(piece_, at_, count);
    at_ += count;
    if (line.size() > kLongestLine) {
      throw DataError(file_.path() + ":" + std::to_string(number_ + 1) +
                      ": is longer than 256 MiB, which is too much for one line; break it into several");
    }
    if (end != std::string::npos || !refill()) break;
  }
  if (!line.empty()) ++number_;
  return !line.empty();
}

bool TextLines::refill() {
  piece_.resize(kTextPiece);
  piece_.resize(file_.read(piece_.data(), kTextPiece));
  at_ = 0;
  return !piece_.empty();
}

void require_utf8(std::string_view text, const std::string& place) {
  const size_t valid = valid_utf8_length(text);
  if (valid == text.size()) return;
  throw DataError(place + ": byte " + std::to_string(valid + 1) + ", " +
                  hexadecimal(static_cast<unsigned char>(text[valid])) + ", is not UTF-8");
}

}  // namespace trainrun
