#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

struct re_pattern_buffer;  // Oniguruma's compiled pattern

namespace trainrun {

/// A regular expression in Oniguruma's syntax, over UTF-8: the engine, and so the meaning, that Hugging Face's
/// tokenizers have. May be used by several threads at once.
class Regex {
 public:
  /// Throws DataError that says what is wrong with the pattern.
  explicit Regex(const std::string& pattern);

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
