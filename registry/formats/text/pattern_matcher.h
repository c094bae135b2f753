#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "registry/formats/text/json_node.h"
#include "registry/language/regex.h"

namespace trainrun {

/// A `pattern` of tokenizer.json: {"String": "…"}, found literally, or {"Regex": "…"}.
class PatternMatcher {
 public:
  explicit PatternMatcher(const JsonNode& node);
  explicit PatternMatcher(std::string literal) : literal_(std::move(literal)) {}

  /// Calls `take(begin, end)` for each match, from left to right. An empty text matches an empty pattern never.
  template <class Take>
  void each(std::string_view text, const Take& take) const {
    if (regex_) return regex_->each(text, take);
    if (literal_.empty()) return;
    for (size_t at = text.find(literal_); at != std::string_view::npos;
         at = text.find(literal_, at + literal_.size())) {
      take(at, at + literal_.size());
    }
  }

  std::string replaced(std::string_view text, std::string_view by) const {
    std::string result;
    size_t done = 0;
    each(text, [&](size_t begin, size_t end) {
      result.append(text, done, begin - done).append(by);
      done = end;
    });
    return result.append(text, done);
  }

 private:
  std::string literal_;
  std::optional<Regex> regex_;
};

}  // namespace trainrun
