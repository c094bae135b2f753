#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

struct re_pattern_buffer;  // Oniguruma's compiled pattern

namespace trainrun {

/// A regular expression, over UTF-8, found by Oniguruma: the engine, and so the meaning, that Hugging Face's tokenizers
/// have. However long a text is, it is no deeper in calls, and it gives up where a pattern would take forever. May be used
/// by several threads at once.
class Regex {
 public:
  enum class Syntax {
    kOniguruma,
    kEcmaScript  // what recipes and JSON Schema have: ^ and $ are the ends of the text, not of lines; over any bytes
  };
  /// Throws DataError that says what is wrong with the pattern.
  explicit Regex(const std::string& pattern, Syntax syntax = Syntax::kOniguruma);

  /// Whether it matches somewhere in the text. Throws DataError where it gives up.
  bool is_in(std::string_view text) const;
  /// The text with `replacement` for each match. In that, $1 stands for what the first group matched, $& for the whole
  /// match, $$ for a dollar sign, as in std::regex_replace.
  std::string replaced(std::string_view text, const std::string& replacement) const;

  /// Calls `take(begin, end)` for each match, from left to right. An empty match right behind another one does not count.
  template <class Take>
  void each(std::string_view text, const Take& take) const {
    Search search(*this, text);
    while (const auto match = search.next()) take(match->begin, match->end);
  }

 private:
  struct Match {
    size_t begin, end;
  };
  class Search {
   public:
    Search(const Regex& regex, std::string_view text);
    ~Search();
    Search(const Search&) = delete;
    Search& operator=(const Search&) = delete;
    std::optional<Match> next();
    /// What group `number` of the newest match has; 0: all of it. "" where there is no such group, or it has nothing.
    std::string_view group(size_t number) const;

   private:
    const Regex& regex_;
    std::string_view text_;
    void* region_;
    size_t from_ = 0;
    std::optional<size_t> last_end_;
  };
  struct Free {
    void operator()(re_pattern_buffer* pattern) const;
  };
  std::string pattern_;
  std::unique_ptr<re_pattern_buffer, Free> compiled_;
};

}  // namespace trainrun
