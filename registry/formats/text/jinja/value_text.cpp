#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "registry/formats/text/jinja/value.h"
#include "registry/formats/text/unicode.h"
#include "registry/language/hex.h"

// Values as texts: Python's str, repr and json.dumps.

namespace trainrun::jinja {
namespace {

/// Python's str.isprintable.
bool is_printable(char32_t character) {
  if (character == ' ') return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(character))) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

std::string quoted(const std::string& text) {
  const bool has_single = text.find('\'') != std::string::npos;
  const char quote = has_single && text.find('"') == std::string::npos ? '"' : '\'';
  std::string result(1, quote);
  for (size_t at = 0; at < text.size();) {
    const char32_t character = unicode::next(text, at);
    if (character == static_cast<char32_t>(quote) || character == '\\') {
      result += '\\';
      result += static_cast<char>(character);
    } else if (character == '\n' || character == '\r' || character == '\t') {
      result += character == '\n' ? "\\n" : (character == '\r' ? "\\r" : "\\t");
    } else if (is_printable(character)) {
      unicode::append(result, character);
    } else {
      result += character < 0x100     ? "\\x" + hex_number(character, 2)
                : character < 0x10000 ? "\\u" + hex_number(character, 4)
                                      : "\\U" + hex_number(character, 8);
    }
  }
  return result + quote;
}

/// Texts are put together in `out`, so that each character is written once.
void append_repr(std::string& out, const Value& value, Budget& budget) {
  const size_t before = out.size();
  budget.spend();
  if (const std::string* text = value.as_text()) {
    out += quoted(*text);
  } else if (const List* list = value.as_list()) {
    out += list->is_tuple ? '(' : '[';
    for (size_t i = 0; i < list->items.size(); ++i) {
      if (i > 0) out += ", ";
      append_repr(out, list->items[i], budget);
    }
    if (list->is_tuple && list->items.size() == 1) out += ',';
    out += list->is_tuple ? ')' : ']';
  } else if (const Dict* dict = value.as_dict()) {
    out += '{';
    for (size_t i = 0; i < dict->members.size(); ++i) {
      if (i > 0) out += ", ";
      append_repr(out, dict->members[i].first, budget);
      out += ": ";
      append_repr(out, dict->members[i].second, budget);
    }
    out += '}';
  } else {
    out += value.is_undefined() ? "Undefined" : str(value, budget);
  }
  if (value.depth() == 0) budget.build(out.size() - before);
}

}  // namespace

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char digits[64];
  const auto end = std::to_chars(digits, digits + sizeof digits, value, std::chars_format::scientific).ptr;
  std::string scientific(digits, end);  // "-1.25e+03"
  const size_t e = scientific.find('e');
  const int exponent = std::stoi(scientific.substr(e + 1));
  if (exponent < -4 || exponent >= 16) return scientific;
  const auto last = std::to_chars(digits, digits + sizeof digits, value, std::chars_format::fixed).ptr;
  const std::string fixed(digits, last);
  return fixed.find('.') == std::string::npos ? fixed + ".0" : fixed;
}

std::string str(const Value& value, Budget& budget) {
  if (const std::string* text = value.as_text()) return *text;
  if (value.is_undefined()) return "";
  if (value.is_none()) return "None";
  if (const bool* flag = value.as_flag()) return *flag ? "True" : "False";
  if (const int64_t* integer = value.as_integer()) return std::to_string(*integer);
  if (const double* number = value.as_number()) return float_text(*number);
  if (!value.as_list() && !value.as_dict()) {
    throw TemplateError(std::string("a ") + value.type_name() + " cannot be written as text");
  }
  return repr(value, budget);
}

std::string repr(const Value& value, Budget& budget) {
  std::string out;
  append_repr(out, value, budget);
  return out;
}

namespace {

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, Budget& budget) : style_(style), budget_(budget) {}

  void write(const Value& value) {
    budget_.spend();
    if (const std::string* text = value.as_text()) {
      write_text(*text);
    } else if (const List* list = value.as_list()) {
      write_all(list->items.size(), '[', ']', [&](size_t i) { write(list->items[i]); });
    } else if (const Dict* dict = value.as_dict()) {
      write_dict(*dict);
    } else {
      write_scalar(value);
    }
  }
  std::string taken() { return std::move(out_); }

 private:
  static std::string scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (const bool* flag = value.as_flag()) return *flag ? "true" : "false";
    if (const int64_t* integer = value.as_integer()) return std::to_string(*integer);
    if (const double* number = value.as_number()) {
      if (std::isnan(*number)) return "NaN";
      return std::isinf(*number) ? (*number > 0 ? "Infinity" : "-Infinity") : float_text(*number);
    }
    throw TemplateError(std::string("a value of type ") + value.type_name() + " cannot be written as JSON");
  }

  void write_dict(const Dict& dict) {
    std::vector<const std::pair<Value, Value>*> members;
    for (const auto& member : dict.members) members.push_back(&member);
    if (style_.sort_keys) {
      std::stable_sort(members.begin(), members.end(),
                       [&](const auto* a, const auto* b) { return compare(a->first, b->first, budget_) < 0; });
    }
    write_all(members.size(), '{', '}', [&](size_t i) {
      const Value& key = members[i]->first;
      write_text(key.as_text() ? *key.as_text() : scalar(key));
      budget_.build(style_.key_separator.size());
      out_ += style_.key_separator;
      write(members[i]->second);
    });
  }

  template <class WriteOne>
  void write_all(size_t count, char open, char close, const WriteOne& write_one) {
    out_ += open;
    ++level_;
    for (size_t i = 0; i < count; ++i) {
      if (i > 0) {
        budget_.build(style_.item_separator.size());
        out_ += style_.item_separator;
      }
      new_line();
      write_one(i);
    }
    --level_;
    if (count > 0) new_line();
    out_ += close;
  }

  void new_line() {
    if (!style_.indent) return;
    budget_.build(static_cast<size_t>(level_) * style_.indent->size());
    out_ += '\n';
    for (int i = 0; i < level_; ++i) out_ += *style_.indent;
  }

  void write_scalar(const Value& value) {
    const std::string text = scalar(value);
    budget_.build(text.size());
    out_ += text;
  }

  void write_text(const std::string& text) {
    spend_on_letters(budget_, text);
    const size_t before = out_.size();
    out_ += '"';
    for (size_t at = 0; at < text.size();) {
      const size_t begin = at;
      while (at < text.size() && is_itself(text[at])) ++at;
      out_.append(text, begin, at - begin);
      if (at < text.size()) write_character(unicode::next(text, at));
    }
    out_ += '"';
    budget_.build(out_.size() - before);
  }

  /// Whether a letter stands for itself in every style: most do, and are copied many at a time.
  static bool is_itself(char letter) { return letter >= ' ' && letter < 0x7F && letter != '"' && letter != '\\'; }

  void write_character(char32_t character) {
    static constexpr std::pair<char32_t, const char*> kEscapes[] = {
        {'"', "\\\""}, {'\\', "\\\\"}, {'\n', "\\n"}, {'\r', "\\r"}, {'\t', "\\t"}, {'\f', "\\f"}, {'\b', "\\b"}};
    for (const auto& [escaped, as] : kEscapes) {
      if (character == escaped) {
        out_ += as;
        return;
      }
    }
    if (character >= 0x20 && (!style_.ensure_ascii || character < 0x7F)) {
      unicode::append(out_, character);
    } else if (character < 0x10000) {
      out_ += "\\u" + hex_number(character, 4);
    } else {
      out_ += "\\u" + hex_number(0xD800 + ((character - 0x10000) >> 10), 4);
      out_ += "\\u" + hex_number(0xDC00 + ((character - 0x10000) & 0x3FF), 4);
    }
  }

  const JsonStyle& style_;
  Budget& budget_;
  std::string out_;
  int level_ = 0;
};

}  // namespace

std::string json_text(const Value& value, const JsonStyle& style, Budget& budget) {
  JsonWriter writer(style, budget);
  writer.write(value);
  return writer.taken();
}

}  // namespace trainrun::jinja
