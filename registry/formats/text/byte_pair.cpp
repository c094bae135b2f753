#include <array>
#include <queue>

#include "registry/formats/text/text_model.h"
#include "registry/formats/text/unicode.h"
#include "registry/language/error.h"
#include "registry/language/splitmix.h"

namespace trainrun {
namespace {

/// A token of a word while pairs are merged; a list, so that merging takes no time.
struct Symbol {
  int64_t id;
  int32_t previous, next;  // -1 at the ends
  bool alive = true;
};

/// A pair that can be merged, as it was when it was found.
struct Candidate {
  int32_t place;
  uint32_t rank;
  int64_t id;
  /// The queue's top is its largest: the merge that was learnt first, and of those the leftmost.
  bool operator<(const Candidate& other) const { return rank != other.rank ? rank > other.rank : place > other.place; }
};

struct PairHash {
  size_t operator()(uint64_t pair) const { return splitmix64(pair); }
};

class BytePair final : public TextModel {
 public:
  bool is_byte_pair() const override { return true; }
  BytePair(Vocabulary vocabulary, const Merges& merges, const BytePairOptions& options)
      : TextModel(std::move(vocabulary)), options_(options) {
    if (options.unknown) unknown_ = vocabulary_.find(*options.unknown);  // GPT-2's files name one that there is not
    merges_.reserve(merges.size());
    for (size_t rank = 0; rank < merges.size(); ++rank) {
      const auto& [left, right] = merges[rank];
      const std::string which = "merge " + std::to_string(rank) + ": the token";
      const int64_t left_id = known(left, which), right_id = known(right, which);
      if (right.size() < options.continuing_prefix.size()) throw DataError(which + " \"" + right + "\" has no prefix");
      const int64_t id = known(left + right.substr(options.continuing_prefix.size()), which);
      merges_[key(left_id, right_id)] = {static_cast<uint32_t>(rank), id};
    }
    if (options.byte_fallback) find_bytes();
  }

  void encode(std::string_view word, std::vector<int64_t>& ids) const override {
    if (options_.ignore_merges) {
      if (const auto id = vocabulary_.find(word)) return ids.push_back(*id);
    }
    std::vector<Symbol> symbols = spell(word);
    merge(symbols);
    for (const Symbol& symbol : symbols) {
      if (symbol.alive) ids.push_back(symbol.id);
    }
  }

 private:
  struct Merge {
    uint32_t rank;
    int64_t id;
  };

  static uint64_t key(int64_t left, int64_t right) {
    return static_cast<uint64_t>(left) << 32 | static_cast<uint64_t>(right);
  }

  int64_t known(const std::string& token, const std::string& what) const {
    const auto id = vocabulary_.find(token);
    if (!id) throw DataError(what + " \"" + token + "\" is not in the vocabulary");
    return *id;
  }

  int64_t unknown() const { return unknown_ ? *unknown_ : known(*options_.unknown, "the unknown token"); }

  void find_bytes() {
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    for (size_t byte = 0; byte < bytes_.size(); ++byte) {
      const std::string token = {'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 15], '>'};
      bytes_[byte] = vocabulary_.find(token).value_or(-1);
    }
  }

  static void add(std::vector<Symbol>& symbols, int64_t id) {
    const auto place = static_cast<int32_t>(symbols.size());
    symbols.push_back({id, place - 1, place + 1});
  }

  /// Adds the bytes of a character; false, and nothing added, if one of them has no token.
  bool add_bytes(std::vector<Symbol>& symbols, std::string_view character) const {
    for (const char byte : character) {
      if (bytes_[static_cast<unsigned char>(byte)] < 0) return false;
    }
    for (const char byte : character) add(symbols, bytes_[static_cast<unsigned char>(byte)]);
    return true;
  }

  /// The characters' tokens. One that is unknown waits until the next one that is known, as in Hugging Face's.
  std::vector<Symbol> spell(std::string_view word) const {
    std::vector<Symbol> symbols;
    symbols.reserve(word.size());
    bool waiting = false;
    std::string affixed;
    for (size_t begin = 0; begin < word.size();) {
      const size_t end = begin + unicode::length(word[begin]);
      std::string_view character = word.substr(begin, end - begin);
      if (begin > 0 && !options_.continuing_prefix.empty()) {
        character = affixed.assign(options_.continuing_prefix).append(character);
      }
      if (end == word.size() && !options_.word_suffix.empty()) {
        character = affixed = std::string(character) + options_.word_suffix;
      }
      begin = end;
      if (const auto id = vocabulary_.find(character)) {
        if (waiting) add(symbols, unknown());
        waiting = false;
        add(symbols, *id);
      } else if (!(options_.byte_fallback && add_bytes(symbols, character)) && options_.unknown) {
        if (waiting && !options_.fuse_unknown) add(symbols, unknown());
        waiting = true;
      }
    }
    if (waiting) add(symbols, unknown());
    if (!symbols.empty()) symbols.back().next = -1;
    return symbols;
  }

  /// The merge of the symbol at `place` with its next one, if there is one.
  std::optional<Candidate> candidate(const std::vector<Symbol>& symbols, int32_t place) const {
    if (place < 0 || symbols[static_cast<size_t>(place)].next < 0) return std::nullopt;
    const Symbol& left = symbols[static_cast<size_t>(place)];
    const auto merge = merges_.find(key(left.id, symbols[static_cast<size_t>(left.next)].id));
    if (merge == merges_.end()) return std::nullopt;
    return Candidate{place, merge->second.rank, merge->second.id};
  }

  void merge(std::vector<Symbol>& symbols) const {
    std::vector<Candidate> found;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      if (const auto pair = candidate(symbols, static_cast<int32_t>(i))) found.push_back(*pair);
    }
    std::priority_queue<Candidate> queue(std::less<Candidate>(), std::move(found));
    while (!queue.empty()) {
      const Candidate top = queue.top();
      queue.pop();
      Symbol& left = symbols[static_cast<size_t>(top.place)];
      if (!left.alive || left.next < 0) continue;
      Symbol& right = symbols[static_cast<size_t>(left.next)];
      const auto merge = merges_.find(key(left.id, right.id));
      if (merge == merges_.end() || merge->second.id != top.id) continue;  // what was found has changed since
      left.id = top.id;
      left.next = right.next;
      right.alive = false;
      if (right.next >= 0) symbols[static_cast<size_t>(right.next)].previous = top.place;
      if (const auto pair = candidate(symbols, left.previous)) queue.push(*pair);
      if (const auto pair = candidate(symbols, top.place)) queue.push(*pair);
    }
  }

  BytePairOptions options_;
  std::optional<int64_t> unknown_;
  std::array<int64_t, 256> bytes_{};
  std::unordered_map<uint64_t, Merge, PairHash> merges_;
};

}  // namespace

std::unique_ptr<TextModel> byte_pair_model(Vocabulary vocabulary, const Merges& merges,
                                           const BytePairOptions& options) {
  return std::make_unique<BytePair>(std::move(vocabulary), merges, options);
}

}  // namespace trainrun
