#include "registry/language/regex.h"

#include <oniguruma.h>

#include <new>

#include "registry/language/error.h"
#include "registry/language/utf8.h"

namespace trainrun {
namespace {

const OnigUChar* onig_text(const char* text) { return reinterpret_cast<const OnigUChar*>(text); }

void start_oniguruma() {
  static const int result = [] {
    OnigEncoding encodings[] = {ONIG_ENCODING_UTF8, ONIG_ENCODING_ASCII};
    return onig_initialize(encodings, 2);
  }();
  if (result != ONIG_NORMAL) throw Error("Oniguruma, the regular expressions' engine, cannot be started");
}

/// ECMAScript's pattern in Oniguruma's syntax.
std::string with_ends_of_text(const std::string& pattern) {
  std::string result;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      result += c;
      result += pattern[++i];
    } else if (!in_class && (c == '^' || c == '$')) {
      result += c == '^' ? "\\A" : "\\z";
    } else {
      if (c == '[') in_class = true;
      if (c == ']') in_class = false;
      result += c;
    }
  }
  return result;
}

}  // namespace

void Regex::Free::operator()(re_pattern_buffer* pattern) const { onig_free(pattern); }

Regex::Regex(const std::string& pattern, Syntax syntax) : pattern_(pattern) {
  start_oniguruma();
  const bool is_ecma = syntax == Syntax::kEcmaScript;
  const std::string read = is_ecma ? with_ends_of_text(pattern) : pattern;
  OnigErrorInfo info{};
  regex_t* compiled = nullptr;
  const int code = onig_new(&compiled, onig_text(read.data()), onig_text(read.data() + read.size()), ONIG_OPTION_NONE,
                            is_ecma ? ONIG_ENCODING_ASCII : ONIG_ENCODING_UTF8,
                            is_ecma ? ONIG_SYNTAX_PERL : ONIG_SYNTAX_DEFAULT, &info);
  if (code == ONIGERR_MEMORY) throw std::bad_alloc();
  if (code != ONIG_NORMAL) {
    OnigUChar message[ONIG_MAX_ERROR_MESSAGE_LEN];
    const int size = onig_error_code_to_str(message, code, &info);
    throw DataError("'" + pattern + "' is not a regular expression: " +
                    std::string(reinterpret_cast<const char*>(message), static_cast<size_t>(size)));
  }
  compiled_.reset(compiled);
}

bool Regex::is_in(std::string_view text) const {
  Search search(*this, text);
  return search.next().has_value();
}

std::string Regex::replaced(std::string_view text, const std::string& replacement) const {
  std::string result;
  size_t done = 0;
  Search search(*this, text);
  while (const auto match = search.next()) {
    result += text.substr(done, match->begin - done);
    done = match->end;
    for (size_t i = 0; i < replacement.size(); ++i) {
      const char next = replacement[i] == '$' && i + 1 < replacement.size() ? replacement[i + 1] : '\0';
      if (next == '$' || next == '&') {
        result += next == '$' ? "$" : search.group(0);
        ++i;
      } else if (next >= '0' && next <= '9') {
        result += search.group(static_cast<size_t>(next - '0'));
        ++i;
      } else {
        result += replacement[i];
      }
    }
  }
  return result.append(text.substr(done));
}

std::string_view Regex::Search::group(size_t number) const {
  const auto* region = static_cast<const OnigRegion*>(region_);
  if (number >= static_cast<size_t>(region->num_regs) || region->beg[number] < 0) return {};
  const auto begin = static_cast<size_t>(region->beg[number]);
  return text_.substr(begin, static_cast<size_t>(region->end[number]) - begin);
}

Regex::Search::Search(const Regex& regex, std::string_view text)
    : regex_(regex), text_(text), region_(onig_region_new()) {
  if (!region_) throw std::bad_alloc();
}

Regex::Search::~Search() { onig_region_free(static_cast<OnigRegion*>(region_), 1); }

std::optional<Regex::Match> Regex::Search::next() {
  const char* text = text_.data();
  const OnigUChar* begin = onig_text(text);
  const OnigUChar* end = begin + text_.size();
  auto* region = static_cast<OnigRegion*>(region_);
  while (from_ <= text_.size()) {
    const int found = onig_search(regex_.compiled_.get(), begin, end, begin + from_, end, region, ONIG_OPTION_NONE);
    if (found == ONIG_MISMATCH) return std::nullopt;
    if (found < 0) {
      OnigUChar message[ONIG_MAX_ERROR_MESSAGE_LEN];
      const int size = onig_error_code_to_str(message, found);
      throw DataError("the regular expression '" + regex_.pattern_ + "' fails on a text: " +
                      std::string(reinterpret_cast<const char*>(message), static_cast<size_t>(size)));
    }
    const Match match{static_cast<size_t>(region->beg[0]), static_cast<size_t>(region->end[0])};
    if (match.begin == match.end && last_end_ == match.end) {
      from_ += from_ < text_.size() ? utf8_size(text_[from_]) : 1;
      continue;
    }
    from_ = match.end;
    last_end_ = match.end;
    return match;
  }
  return std::nullopt;
}

}  // namespace trainrun
