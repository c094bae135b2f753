#include "registry/formats/text/jinja/lexer.h"

#include <algorithm>

#include "registry/formats/text/jinja/value.h"
#include "registry/formats/text/unicode.h"
#include "registry/language/hex.h"
#include "registry/language/text_view.h"

namespace trainrun::jinja {
namespace {

using Kind = Token::Kind;

bool begins_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

/// "\r\n" and "\r" become "\n"; one line end at the end goes.
std::string normalized(std::string_view source) {
  std::string text;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      text += source[i];
    } else {
      text += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalized(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) {
      const size_t tag = next_tag();
      if (tag == std::string::npos) {
        add_data(at_, source_.size());
        at_ = source_.size();
        break;
      }
      data_before(tag);
      read_tag(tag);
    }
    add(Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  char peek(size_t ahead = 0) const { return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0'; }
  bool looking_at(std::string_view what) const { return rest().starts_with(what); }

  void add(Kind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  void add_data(size_t begin, size_t end) {
    if (end > begin) add(Kind::kData, source_.substr(begin, end - begin));
  }
  /// Goes on to there, and knows whether a line begins.
  void go_to(size_t place) {
    if (place == at_) return;
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(place), '\n'));
    at_ = place;
    line_begins_ = source_[place - 1] == '\n';
  }

  size_t next_tag() const {
    for (size_t i = source_.find('{', at_); i != std::string::npos; i = source_.find('{', i + 1)) {
      const char next = i + 1 < source_.size() ? source_[i + 1] : '\0';
      if (next == '{' || next == '%' || next == '#') return i;
    }
    return std::string::npos;
  }

  /// The data in front of a tag, without the whitespace that the tag takes away.
  void data_before(size_t tag) {
    const std::string_view text = std::string_view(source_).substr(at_, tag - at_);
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    size_t kept = text.size();
    if (sign == '-') {
      kept -= trailing_space(text);
    } else if (sign != '+' && source_[tag + 1] != '{') {
      const size_t line = text.rfind('\n') == std::string_view::npos ? 0 : text.rfind('\n') + 1;
      const bool is_blank = leading_space(text.substr(line)) == text.size() - line;
      if (is_blank && (line > 0 || line_begins_)) kept = line;
    }
    add_data(at_, at_ + kept);
    go_to(tag);
  }

  void read_tag(size_t tag) {
    const char kind = source_[tag + 1];
    const bool has_sign = tag + 2 < source_.size() && (source_[tag + 2] == '-' || source_[tag + 2] == '+');
    if (kind == '%' && read_raw(tag, has_sign)) return;
    if (kind == '%') add(Kind::kBlockBegin, "{%");
    if (kind == '{') add(Kind::kVariableBegin, "{{");
    go_to(tag + (has_sign ? 3 : 2));
    if (kind == '#') return pass_comment();
    read_inside(kind == '%');
  }

  void pass_comment() {
    const int begun = line_;
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos) fail_at(begun, "the comment does not end");
    const char sign = end > at_ ? source_[end - 1] : '\0';
    go_to(end + 2);
    pass_after(sign, /*trims=*/true);
  }

  /// The whitespace behind a tag that it takes away.
  void pass_after(char sign, bool trims) {
    if (sign == '-') {
      go_to(at_ + leading_space(rest()));
    } else if (sign != '+' && trims && peek() == '\n') {
      go_to(at_ + 1);
    }
  }

  /// {% raw %} … {% endraw %}
  bool read_raw(size_t tag, bool has_sign) {
    size_t place = after_word(tag + (has_sign ? 3 : 2), "raw");
    if (place == std::string::npos) return false;
    const bool strips = source_[place] == '-';
    place += strips ? 1 : 0;
    if (source_.compare(place, 2, "%}") != 0) return false;
    go_to(place + 2);
    if (strips) go_to(at_ + leading_space(rest()));
    for (size_t i = source_.find("{%", at_); i != std::string::npos; i = source_.find("{%", i + 2)) {
      const char sign = i + 2 < source_.size() ? source_[i + 2] : '\0';
      const size_t end = after_word(i + (sign == '-' || sign == '+' ? 3 : 2), "endraw");
      if (end == std::string::npos) continue;
      const char last = source_[end];
      const size_t close = end + (last == '-' || last == '+' ? 1 : 0);
      if (source_.compare(close, 2, "%}") != 0) continue;
      data_before(i);
      go_to(close + 2);
      pass_after(last, /*trims=*/true);
      return true;
    }
    fail_at(line_, "{% raw %} is not followed by {% endraw %}");
  }

  /// Where the word ends that begins, after spaces, at `place`, and the spaces behind it; npos: another stands there.
  size_t after_word(size_t place, std::string_view word) const {
    const std::string_view text = std::string_view(source_).substr(std::min(place, source_.size()));
    const size_t before = leading_space(text);
    if (!text.substr(before).starts_with(word)) return std::string::npos;
    const size_t end = before + word.size();
    const size_t found = place + end + leading_space(text.substr(end));
    return found < source_.size() ? found : std::string::npos;
  }

  void read_inside(bool is_block) {
    const int begun = line_;
    std::string open;  // brackets
    while (at_ < source_.size()) {
      const char sign = peek();
      const size_t signs = sign == '-' || (is_block && sign == '+') ? 1 : 0;
      if (open.empty() && rest().substr(signs).starts_with(is_block ? "%}" : "}}")) {
        add(is_block ? Kind::kBlockEnd : Kind::kVariableEnd, "");
        go_to(at_ + signs + 2);
        return pass_after(signs ? sign : '\0', is_block);
      }
      if (const size_t space = leading_space(rest())) {
        go_to(at_ + space);
      } else {
        read_token(open);
      }
    }
    fail_at(begun, is_block ? "{% is not followed by %}" : "{{ is not followed by }}");
  }

  void read_token(std::string& open) {
    const char c = peek();
    if (begins_name(c)) {
      size_t end = at_;
      while (end < source_.size() && (begins_name(source_[end]) || is_digit(source_[end]))) ++end;
      add(Kind::kName, source_.substr(at_, end - at_));
      go_to(end);
    } else if (is_digit(c)) {
      read_number();
    } else if (c == '\'' || c == '"') {
      read_text(c);
    } else {
      read_operator(open);
    }
  }

  void read_number() {
    size_t end = at_;
    bool is_float = false;
    const auto digits = [&] {
      while (end < source_.size() && (is_digit(source_[end]) ||
                                      (source_[end] == '_' && end + 1 < source_.size() && is_digit(source_[end + 1]))))
        ++end;
    };
    const auto digit_at = [&](size_t i) { return i < source_.size() && is_digit(source_[i]); };
    digits();
    if (end < source_.size() && source_[end] == '.' && digit_at(end + 1)) {
      is_float = true;
      ++end;
      digits();
    }
    if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      const size_t sign = end + 1 < source_.size() && (source_[end + 1] == '+' || source_[end + 1] == '-') ? 1 : 0;
      if (digit_at(end + 1 + sign)) {
        is_float = true;
        end += 1 + sign;
        digits();
      }
    }
    std::string text = source_.substr(at_, end - at_);
    std::erase(text, '_');
    if (text.size() > 1 && !is_float && text[0] == '0' && text.find_first_not_of('0') != std::string::npos) {
      fail_at(line_, "a number cannot begin with 0");
    }
    if (end < source_.size() && begins_name(source_[end])) fail_at(line_, "a letter stands right behind a number");
    add(is_float ? Kind::kFloat : Kind::kInteger, std::move(text));
    go_to(end);
  }

  void read_text(char quote) {
    std::string text;
    size_t place = at_ + 1;
    while (place < source_.size() && source_[place] != quote) {
      if (source_[place] == '\\') {
        read_escape(place, text);
      } else {
        text += source_[place++];
      }
    }
    if (place >= source_.size()) fail_at(line_, "the text in quotation marks does not end");
    add(Kind::kText, std::move(text));
    go_to(place + 1);
  }

  void read_escape(size_t& place, std::string& text) const {
    const char c = place + 1 < source_.size() ? source_[place + 1] : '\0';
    static constexpr std::string_view kNames = "ntr\\'\"abfv0";
    static constexpr std::string_view kMeant("\n\t\r\\'\"\a\b\f\v\0", 11);
    place += 2;
    if (c == '\n') return;
    if (c == 'x' || c == 'u' || c == 'U') {
      const size_t digits = c == 'x' ? 2 : (c == 'u' ? 4 : 8);
      const std::string code = source_.substr(std::min(place, source_.size()), digits);
      const uint64_t number = code.size() == digits ? number_of_hex(code).value_or(0x110000) : 0x110000;
      if (number > 0x10FFFF || (number >= 0xD800 && number < 0xE000)) {
        fail_at(line_, std::string("\\") + c + " is not followed by the number of a character");
      }
      unicode::append(text, static_cast<char32_t>(number));
      place += digits;
    } else if (c == 'N' || (is_digit(c) && (c != '0' || (place < source_.size() && is_digit(source_[place]))))) {
      fail_at(line_, std::string("the escape \\") + c + " is not supported; write \\u and four hexadecimal digits");
    } else if (const size_t found = kNames.find(c); c != '\0' && found != std::string_view::npos) {
      text += kMeant[found];
    } else {
      text += '\\';
      if (c != '\0') text += c;
    }
  }

  void read_operator(std::string& open) {
    static constexpr std::string_view kOperators[] = {"**", "//", "==", "!=", ">=", "<=", "+", "-", "/",
                                                      "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                      ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    const auto found = std::find_if(std::begin(kOperators), std::end(kOperators),
                                    [&](std::string_view one) { return looking_at(one); });
    if (found == std::end(kOperators)) {
      fail_at(line_, "unexpected '" + source_.substr(at_, unicode::length(peek())) + "'");
    }
    const char c = peek();
    if (c == '(' || c == '[' || c == '{') open += c == '(' ? ')' : (c == '[' ? ']' : '}');
    if (c == ')' || c == ']' || c == '}') {
      if (!open.ends_with(c)) fail_at(line_, std::string("unexpected '") + c + "'");
      open.pop_back();
    }
    add(Kind::kOperator, std::string(*found));
    go_to(at_ + found->size());
  }

  std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_begins_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokens_of(std::string_view source) { return Lexer(source).run(); }

void fail_at(int line, const std::string& message) {
  throw TemplateError("line " + std::to_string(line) + ": " + message);
}

bool is_python_space(char32_t character) {
  return unicode::is_whitespace(character) || (character >= 0x1C && character <= 0x1F);
}

size_t leading_space(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    size_t next = at;
    if (!is_python_space(unicode::next(text, next))) break;
    at = next;
  }
  return at;
}

size_t trailing_space(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    const size_t begin = unicode::start_of_last(text, end);
    size_t at = begin;
    if (!is_python_space(unicode::next(text, at))) break;
    end = begin;
  }
  return text.size() - end;
}

}  // namespace trainrun::jinja
