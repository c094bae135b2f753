#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace trainrun {

/// The ids of words that came before. It has a fixed number of places; a word that comes to a place that is taken
/// pushes the other out.
class WordCache {
 public:
  /// Longer words are not kept: few come twice.
  static constexpr size_t kLongestWord = 255;

  /// Null if the word is not there.
  const std::vector<int64_t>* find(std::string_view word) const {
    const Entry& entry = entries_[place(word)];
    return entry.word == word ? &entry.ids : nullptr;
  }
  void keep(std::string_view word, const int64_t* begin, const int64_t* end) {
    Entry& entry = entries_[place(word)];
    entry.word = word;
    entry.ids.assign(begin, end);
  }

 private:
  struct Entry {
    std::string word;
    std::vector<int64_t> ids;
  };
  static constexpr size_t kPlaces = size_t{1} << 14;
  static size_t place(std::string_view word) { return std::hash<std::string_view>()(word) % kPlaces; }
  std::vector<Entry> entries_ = std::vector<Entry>(kPlaces);
};

/// Caches for as many threads as encode at once: each borrows one for the length of a text.
class WordCaches {
 public:
  class Loan {
   public:
    explicit Loan(WordCaches& owner) : owner_(owner), cache_(owner.take()) {}
    ~Loan() { owner_.put(std::move(cache_)); }
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    WordCache* operator->() const { return cache_.get(); }

   private:
    WordCaches& owner_;
    std::unique_ptr<WordCache> cache_;
  };

 private:
  std::unique_ptr<WordCache> take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique<WordCache>();
    auto cache = std::move(free_.back());
    free_.pop_back();
    return cache;
  }
  void put(std::unique_ptr<WordCache> cache) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(cache));
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<WordCache>> free_;
};

}  // namespace trainrun
