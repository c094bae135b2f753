#include "registry/formats/text/bpe_trainer.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <queue>
#include <string_view>

#include "registry/formats/text/byte_letters.h"
#include "registry/formats/text/unicode.h"
#include "registry/language/splitmix.h"

namespace trainrun {
namespace {

constexpr int kHalf = 32;  // bits of an id in a pair

uint64_t pair_of(uint32_t left, uint32_t right) { return uint64_t{left} << kHalf | right; }
uint32_t left_of(uint64_t pair) { return static_cast<uint32_t>(pair >> kHalf); }
uint32_t right_of(uint64_t pair) { return static_cast<uint32_t>(pair); }

struct TokenPairHash {
  size_t operator()(uint64_t pair) const { return splitmix64(pair); }
};
template <class T>
using ByPair = std::unordered_map<uint64_t, T, TokenPairHash>;

using WordNumbers = std::vector<uint32_t>;

/// Tokens by their ids, each text once.
class TokenTable {
 public:
  uint32_t add(const std::string& token) {
    const auto [place, is_new] = ids_.emplace(token, static_cast<uint32_t>(tokens_.size()));
    if (is_new) tokens_.push_back(token);
    return place->second;
  }
  size_t size() const { return tokens_.size(); }
  const std::string& operator[](uint32_t id) const { return tokens_[id]; }
  std::vector<std::string> take() { return std::move(tokens_); }

 private:
  std::unordered_map<std::string, uint32_t> ids_;
  std::vector<std::string> tokens_;
};

/// The ids of the 256 bytes, added in the order of their letters' code points.
std::vector<uint32_t> add_bytes(TokenTable& table) {
  constexpr int kBytes = 256;
  std::vector<std::pair<char32_t, int>> letters;
  for (int byte = 0; byte < kBytes; ++byte) {
    const char one = static_cast<char>(byte);
    size_t at = 0;
    letters.emplace_back(unicode::next(byte_letters({&one, 1}), at), byte);
  }
  std::sort(letters.begin(), letters.end());
  std::vector<uint32_t> ids(kBytes);
  for (const auto& [letter, byte] : letters) ids[static_cast<size_t>(byte)] = table.add(unicode::encoded(letter));
  return ids;
}

/// The words that training looks at, as tokens, and the pairs of tokens that follow each other in them.
class PairTable {
 public:
  PairTable(const WordCounter::Counts& words, const std::vector<uint32_t>& byte_ids) {
    for (const auto& [word, count] : words) {
      if (word.size() < 2) continue;  // nothing to merge
      std::vector<uint32_t>& tokens = words_.emplace_back();
      for (const char byte : word) tokens.push_back(byte_ids[static_cast<unsigned char>(byte)]);
      word_counts_.push_back(count);
    }
    for (uint32_t number = 0; number < words_.size(); ++number) {
      const std::vector<uint32_t>& tokens = words_[number];
      for (size_t i = 0; i + 1 < tokens.size(); ++i) change(pair_of(tokens[i], tokens[i + 1]), 1, number);
    }
  }

  /// How often a pair has been seen; what is merged is not taken off, as in Hugging Face's trainer.
  int64_t count(uint64_t pair) const { return counts_.at(pair); }

  /// Merges the pair in these words.
  void merge(uint64_t pair, uint32_t merged, const WordNumbers& words) {
    for (const uint32_t number : words) merge_in_word(pair, merged, number);
  }

  /// The pairs that have come up since this was called last, each with the words in which it did.
  ByPair<WordNumbers> take_new() { return std::exchange(new_places_, {}); }

 private:
  void change(uint64_t pair, int64_t by, uint32_t word) {
    counts_[pair] += by * word_counts_[word];
    if (by < 0) return;
    WordNumbers& places = new_places_[pair];
    if (places.empty() || places.back() != word) places.push_back(word);  // words are looked at one after another
  }

  void merge_in_word(uint64_t pair, uint32_t merged, uint32_t number) {
    std::vector<uint32_t>& tokens = words_[number];
    size_t kept = 0;  // tokens before this place are as they will be
    for (size_t i = 0; i < tokens.size(); ++i) {
      const bool is_pair = i + 1 < tokens.size() && tokens[i] == left_of(pair) && tokens[i + 1] == right_of(pair);
      if (!is_pair) {
        tokens[kept++] = tokens[i];
        continue;
      }
      if (kept > 0) {
        change(pair_of(tokens[kept - 1], left_of(pair)), -1, number);
        change(pair_of(tokens[kept - 1], merged), 1, number);
      }
      if (i + 2 < tokens.size()) {
        change(pair_of(right_of(pair), tokens[i + 2]), -1, number);
        change(pair_of(merged, tokens[i + 2]), 1, number);
      }
      tokens[kept++] = merged;
      ++i;
    }
    tokens.resize(kept);
  }

  std::vector<std::vector<uint32_t>> words_;
  std::vector<int64_t> word_counts_;
  ByPair<int64_t> counts_;
  ByPair<WordNumbers> new_places_;
};

/// A pair that may be merged, with the words in which it came up.
struct MergeCandidate {
  uint64_t pair = 0;
  int64_t count = 0;
  WordNumbers words;
  /// Whether the other one is to be merged before this one.
  bool operator<(const MergeCandidate& other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

/// The candidates, the one to be merged first on top.
class CandidateHeap {
 public:
  bool empty() const { return heap_.empty(); }
  void push(MergeCandidate candidate) {
    heap_.push_back(std::move(candidate));
    std::push_heap(heap_.begin(), heap_.end());
  }
  MergeCandidate pop() {
    std::pop_heap(heap_.begin(), heap_.end());
    MergeCandidate top = std::move(heap_.back());
    heap_.pop_back();
    return top;
  }
  void push_new(PairTable& table) {
    for (auto& [pair, words] : table.take_new()) {
      if (const int64_t count = table.count(pair); count > 0) push({pair, count, std::move(words)});
    }
  }

 private:
  std::vector<MergeCandidate> heap_;
};

/// Each pair once, at its last place: two ways to the same token can have made it a candidate twice.
std::vector<std::pair<uint32_t, uint32_t>> last_of_each(const std::vector<uint64_t>& merges) {
  ByPair<size_t> last;
  for (size_t i = 0; i < merges.size(); ++i) last[merges[i]] = i;
  std::vector<std::pair<uint32_t, uint32_t>> kept;
  for (size_t i = 0; i < merges.size(); ++i) {
    if (last.at(merges[i]) == i) kept.emplace_back(left_of(merges[i]), right_of(merges[i]));
  }
  return kept;
}

}  // namespace

TrainedBpe train_bpe(const WordCounter::Counts& words, const BpeTrainerOptions& options) {
  TokenTable table;
  for (const std::string& token : options.special_tokens) table.add(token);
  TrainedBpe trained;
  trained.num_special = table.size();
  const std::vector<uint32_t> byte_ids = add_bytes(table);
  PairTable pairs(words, byte_ids);
  CandidateHeap heap;
  heap.push_new(pairs);
  std::vector<uint64_t> merges;
  while (static_cast<int64_t>(table.size()) < options.vocab_size && !heap.empty()) {
    MergeCandidate top = heap.pop();
    if (const int64_t now = pairs.count(top.pair); now != top.count) {  // other merges have taken some of it since
      top.count = now;
      if (now > 0) heap.push(std::move(top));
      continue;
    }
    if (top.count < options.min_frequency) break;
    const uint32_t merged = table.add(table[left_of(top.pair)] + table[right_of(top.pair)]);
    merges.push_back(top.pair);
    pairs.merge(top.pair, merged, top.words);
    heap.push_new(pairs);
  }
  trained.tokens = table.take();
  trained.merges = last_of_each(merges);
  return trained;
}

std::string tokenizer_json(const TrainedBpe& bpe) {
  using Json = nlohmann::ordered_json;
  const auto byte_level = [] {
    return Json{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  };
  Json added = Json::array();
  for (size_t id = 0; id < bpe.num_special; ++id) {
    added.push_back({{"id", id},
                     {"content", bpe.tokens[id]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  // An ordered object of nlohmann's looks for each key among all others.
  std::string vocabulary;
  for (size_t id = 0; id < bpe.tokens.size(); ++id) {
    vocabulary += (id > 0 ? ",\n      " : "\n      ") + Json(bpe.tokens[id]).dump() + ": " + std::to_string(id);
  }
  std::string merges;
  for (size_t i = 0; i < bpe.merges.size(); ++i) {
    const Json pair = {bpe.tokens[bpe.merges[i].first], bpe.tokens[bpe.merges[i].second]};
    merges += (i > 0 ? ",\n      " : "\n      ") + pair.dump();
  }
  const Json model = {{"type", "BPE"},
                      {"dropout", nullptr},
                      {"unk_token", nullptr},
                      {"continuing_subword_prefix", nullptr},
                      {"end_of_word_suffix", nullptr},
                      {"fuse_unk", false},
                      {"byte_fallback", false},
                      {"ignore_merges", false}};
  std::string text = Json{
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added},
      {"normalizer", nullptr},
      {"pre_tokenizer", byte_level()},
      {"post_processor", byte_level()},
      {"decoder",
       byte_level()}}.dump(2);
  text.resize(text.size() - 2);  // "\n}"
  std::string of_model = model.dump(2);
  of_model.resize(of_model.size() - 2);
  return text + ",\n  \"model\": " + of_model + ",\n    \"vocab\": {" + vocabulary + "\n    },\n    \"merges\": [" +
         merges + "\n    ]\n  }\n}\n";
}

}  // namespace trainrun
