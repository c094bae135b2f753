#include "registry/formats/text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>

#include "registry/language/error.h"
#include "registry/language/utf8.h"

namespace trainrun::unicode {
namespace {

utf8proc_category_t category(char32_t character) { return utf8proc_category(static_cast<utf8proc_int32_t>(character)); }

utf8proc_option_t options_of(Form form) {
  switch (form) {
    case Form::kNfc:
      return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    case Form::kNfd:
      return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
    case Form::kNfkc:
      return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
    default:
      return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
  }
}

}  // namespace

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<signed char>(c) >= 0; });
}

bool is_valid(std::string_view bytes) { return valid_utf8_length(bytes) == bytes.size(); }

std::string valid(std::string_view bytes) {
  if (is_valid(bytes)) return std::string(bytes);
  std::string text;
  size_t part = 0;
  for (size_t at = 0; at < bytes.size(); at += part) {
    if (utf8_length(bytes, at, part) > 0) {
      text.append(bytes, at, part);
    } else {
      append(text, kReplacement);
    }
  }
  return text;
}

size_t length(char first) { return utf8_size(first); }

char32_t next(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[at + i])); };
  const size_t size = length(text[at]);
  char32_t character = byte(0);
  if (size == 2) character = (byte(0) & 0x1F) << 6 | (byte(1) & 0x3F);
  if (size == 3) character = (byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
  if (size == 4) {
    character = (byte(0) & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
  }
  at += size;
  return character;
}

size_t start_of_last(std::string_view text, size_t end) {
  size_t at = end - 1;
  while (at > 0 && !begins_character(text[at])) --at;
  return at;
}

size_t count(std::string_view text) { return count_code_points(text); }

void append(std::string& text, char32_t character) { append_utf8(text, character); }

std::string encoded(char32_t character) { return utf8_of(character); }

bool is_whitespace(char32_t character) {
  if (character < 0x80) return character == ' ' || (character >= '\t' && character <= '\r');
  if (character == 0x85) return true;
  const auto found = category(character);
  return found == UTF8PROC_CATEGORY_ZS || found == UTF8PROC_CATEGORY_ZL || found == UTF8PROC_CATEGORY_ZP;
}

bool is_punctuation(char32_t character) {
  if (character < 0x80) {
    return (character > ' ' && character < '0') || (character > '9' && character < 'A') ||
           (character > 'Z' && character < 'a') || (character > 'z' && character < 0x7F);
  }
  const auto found = category(character);
  return found >= UTF8PROC_CATEGORY_PC && found <= UTF8PROC_CATEGORY_PO;
}

bool is_numeric(char32_t character) {
  if (character < 0x80) return character >= '0' && character <= '9';
  const auto found = category(character);
  return found >= UTF8PROC_CATEGORY_ND && found <= UTF8PROC_CATEGORY_NO;
}

bool is_other(char32_t character) {
  if (character < 0x80) return character < ' ' || character == 0x7F;
  const auto found = category(character);
  return found == UTF8PROC_CATEGORY_CC || found == UTF8PROC_CATEGORY_CF || found == UTF8PROC_CATEGORY_CO;
}

bool is_nonspacing_mark(char32_t character) {
  return character >= 0x300 && category(character) == UTF8PROC_CATEGORY_MN;
}

bool is_mark(char32_t character) {
  if (character < 0x300) return false;
  const auto found = category(character);
  return found >= UTF8PROC_CATEGORY_MN && found <= UTF8PROC_CATEGORY_ME;
}

bool is_word(char32_t character) {
  constexpr char32_t kNonJoiner = 0x200C, kJoiner = 0x200D;
  if (character == kNonJoiner || character == kJoiner) return true;
  const auto found = category(character);
  return (found >= UTF8PROC_CATEGORY_LU && found <= UTF8PROC_CATEGORY_NL) || found == UTF8PROC_CATEGORY_PC ||
         (character >= 0x24B6 && character <= 0x24E9) ||  // circled letters, which are alphabetic though symbols
         (character >= 0x1F130 && character <= 0x1F149) || (character >= 0x1F150 && character <= 0x1F169) ||
         (character >= 0x1F170 && character <= 0x1F189);
}

std::string lower(std::string_view text) {
  constexpr char32_t kDottedI = 0x130;  // the one character whose lower case is two
  std::string result;
  result.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const char32_t character = next(text, at);
    if (character < 0x80) {
      result += static_cast<char>(character >= 'A' && character <= 'Z' ? character + ('a' - 'A') : character);
    } else if (character == kDottedI) {
      result += "i\u0307";
    } else {
      append(result, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(character))));
    }
  }
  return result;
}

std::string normalized(std::string_view text, Form form) {
  if (is_ascii(text)) return std::string(text);
  utf8proc_uint8_t* made = nullptr;
  const auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                 static_cast<utf8proc_ssize_t>(text.size()), &made, options_of(form));
  if (size == UTF8PROC_ERROR_NOMEM) throw std::bad_alloc();
  if (size < 0) throw DataError(std::string("text cannot be normalized: ") + utf8proc_errmsg(size));
  const std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> owner(made, std::free);
  return {reinterpret_cast<const char*>(made), static_cast<size_t>(size)};
}

size_t grapheme_end(std::string_view text, size_t begin) {
  size_t at = begin;
  char32_t previous = next(text, at);
  for (utf8proc_int32_t state = 0; at < text.size();) {
    size_t after = at;
    const char32_t character = next(text, after);
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(previous),
                                         static_cast<utf8proc_int32_t>(character), &state)) {
      break;
    }
    previous = character;
    at = after;
  }
  return at;
}

}  // namespace trainrun::unicode
