#include "registry/text/regex.h"

#include <oniguruma.h>

#include <new>

#include "registry/error.h"
#include "registry/text/unicode.h"

namespace trainrun {
namespace {

const OnigUChar* onig_text(const char* text) { return reinterpret_cast<const OnigUChar*>(text); }

void start_oniguruma() {
  static const int result = [] {
    OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
    return onig_initialize(encodings, 1);
  }();
  if (result != ONIG_NORMAL) throw Error("Oniguruma, the regular expressions' engine, cannot be started");
}

}  // namespace

void Regex::Free::operator()(re_pattern_buffer* pattern) const { onig_free(pattern); }

Regex::Regex(const std::string& pattern) : pattern_(pattern) {
  start_oniguruma();
  OnigErrorInfo info{};
  regex_t* compiled = nullptr;
  const int code = onig_new(&compiled, onig_text(pattern.data()), onig_text(pattern.data() + pattern.size()),
                            ONIG_OPTION_NONE, ONIG_ENCODING_UTF8, ONIG_SYNTAX_DEFAULT, &info);
  if (code == ONIGERR_MEMORY) throw std::bad_alloc();
  if (code != ONIG_NORMAL) {
    OnigUChar message[ONIG_MAX_ERROR_MESSAGE_LEN];
    const int size = onig_error_code_to_str(message, code, &info);
    throw DataError("\"" + pattern + "\" is not a regular expression: " +
                    std::string(reinterpret_cast<const char*>(message), static_cast<size_t>(size)));
  }
  compiled_.reset(compiled);
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
      throw DataError("the regular expression \"" + regex_.pattern_ + "\" fails on a text: " +
                      std::string(reinterpret_cast<const char*>(message), static_cast<size_t>(size)));
    }
    const Match match{static_cast<size_t>(region->beg[0]), static_cast<size_t>(region->end[0])};
    if (match.begin == match.end && last_end_ == match.end) {
      from_ += from_ < text_.size() ? unicode::length(text_[from_]) : 1;
      continue;
    }
    from_ = match.end;
    last_end_ = match.end;
    return match;
  }
  return std::nullopt;
}

}  // namespace trainrun
