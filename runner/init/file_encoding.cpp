#include "runner/init/file_encoding.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "registry/data/data_file.h"
#include "registry/data/text_corpus.h"
#include "registry/language/codec.h"
#include "registry/language/text_forms.h"
#include "registry/language/utf8.h"
#include "runner/base/shell_word.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kAdvice = "; write encoding: ";  // of TextFile

/// What TextFile finds wrong with a file that is read as UTF-8; "": nothing.
std::string fault_of_utf8(const std::string& path) {
  constexpr size_t kPiece = size_t{1} << 18;
  try {
    TextFile file(path, TextEncoding::kUtf8);
    std::string piece(kPiece, '\0');
    while (file.read(piece.data(), piece.size()) > 0) {
    }
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

bool begins_as_utf32(const std::string& path) {
  constexpr std::string_view kLittle("\xFF\xFE\0\0", 4);
  std::string start(kLittle.size(), '\0');
  return DataFile(path).read(start.data(), start.size()) == start.size() && start == kLittle;
}

/// The word of a line with its first character beyond ASCII, for people.
std::string word_in(const std::string& line) {
  constexpr std::string_view kBetween = " ,;:|\t\r\n\"";
  constexpr size_t kMostBytes = 40;
  const auto special = std::ranges::find_if(line, [](char c) { return (c & 0x80) != 0; });
  if (special == line.end()) return "";
  const auto at = static_cast<size_t>(special - line.begin());
  const size_t before = line.find_last_of(kBetween, at);
  const size_t begin = before == std::string::npos ? 0 : before + 1;
  const std::string word = line.substr(begin, line.find_first_of(kBetween, at) - begin);
  std::string shown;
  for (size_t offset = 0; offset < word.size();) {
    const uint32_t point = next_code_point(word, offset);
    if (point == kInvalidCodePoint) return "";
    shown += is_printable(point) ? utf8_of(point) : "?";
  }
  return shortened(shown, kMostBytes);
}

/// The first word with a character beyond ASCII, as the encoding has it; "": it cannot be read so.
std::string word_of_file(const std::string& path, TextEncoding encoding) {
  try {
    TextLines lines(path, encoding);
    for (std::string line; lines.next(line);) {
      if (std::string word = word_in(line); !word.empty()) return word;
    }
  } catch (const DataError&) {  // it is not that encoding
    return "";
  }
  return "";
}

/// What to do about text of which is only known that it is not UTF-8. `likely`: the encoding that its first such byte
/// suggests.
std::string advice_on(const std::string& path, TextEncoding likely) {
  const std::string convert =
      "convert it from the encoding that it was saved in, such as CP1251: " + conversion_command(path, "CP1251");
  if (is_jsonl(path)) return "JSON is UTF-8: " + convert;
  const std::string word = word_of_file(path, likely);
  std::vector<std::string> others = encoding_words();
  others.erase(others.begin());  // UTF-8
  return "add --encoding " + word_of(likely) +
         (word.empty() ? "" : ", with which the first word that is not plain ASCII reads '" + word + "'") +
         ", or the encoding that the file was saved in (" + join(others) + "); if it is none of these, " + convert;
}

std::optional<TextEncoding> told_by(const std::string& path) {
  const std::string fault = fault_of_utf8(path);
  const size_t at = fault.find(kAdvice);
  if (at == std::string::npos) return std::nullopt;
  if (begins_as_utf32(path)) {
    throw DataError(path +
                    ":1: begins with the byte-order mark of UTF-32; convert it: " + conversion_command(path, "UTF-32"));
  }
  const std::string rest = fault.substr(at + kAdvice.size());
  const auto likely = choice_of<TextEncoding>(rest.substr(0, rest.find(' ')));
  if (likely && *likely != TextEncoding::kLatin1 && *likely != TextEncoding::kCp1252) return likely;
  throw DataError(fault.substr(0, at) + "; " + advice_on(path, likely.value_or(TextEncoding::kLatin1)));
}

}  // namespace

std::vector<std::string> encoding_words() {
  const auto& words = Words<TextEncoding>::kWords;
  return {words.begin(), words.end()};
}

std::string iconv_name(TextEncoding encoding) {
  switch (encoding) {
    case TextEncoding::kLatin1:
      return "ISO-8859-1";
    case TextEncoding::kCp1252:
      return "CP1252";
    case TextEncoding::kUtf16:
      return "UTF-16";
    case TextEncoding::kUtf16Le:
      return "UTF-16LE";
    case TextEncoding::kUtf16Be:
      return "UTF-16BE";
    case TextEncoding::kUtf8:
      break;
  }
  return "UTF-8";
}

std::string conversion_command(const std::string& path, const std::string& from, int64_t first_line) {
  const bool is_packed = fs::path(path).extension() == ".gz";
  const fs::path plain = is_packed ? fs::path(path).replace_extension() : fs::path(path);
  const std::string name = plain.stem().string() + (from.empty() ? "_plain" : "_utf8") + plain.extension().string();
  std::vector<std::string> steps;
  if (is_packed) steps.push_back("zcat " + shell_word(path));
  const auto add = [&](const std::string& step) {
    steps.push_back(steps.empty() ? step + " " + shell_word(path) : step);
  };
  if (!from.empty()) add("iconv -f " + from + " -t UTF-8");
  if (first_line > 1) add("tail -n +" + std::to_string(first_line));
  return join(steps, " | ") + " > " + shell_word((plain.parent_path() / name).string());
}

std::optional<TextEncoding> encoding_told_by(const std::vector<std::string>& paths) {
  std::optional<TextEncoding> first;
  for (size_t i = 0; i < paths.size(); ++i) {
    const std::optional<TextEncoding> told = told_by(paths[i]);
    if (i == 0) first = told;
    if (told == first) continue;
    const std::string& other = told ? paths[i] : paths[0];
    const TextEncoding encoding = told ? *told : *first;
    throw DataError(other + ": is " + word_of(encoding) +
                    ", and other texts are not, but a recipe names one encoding for all; convert it: " +
                    conversion_command(other, iconv_name(encoding)));
  }
  return first;
}

std::string for_init(const std::string& message) {
  const size_t at = message.find(kAdvice);
  if (at == std::string::npos) return message;
  return message.substr(0, at) + "; add --encoding " + message.substr(at + kAdvice.size());
}

}  // namespace trainrun
