#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "registry/formats/text/text_model.h"
#include "registry/formats/text/unicode.h"
#include "registry/language/error.h"
#include "registry/language/splitmix.h"

namespace trainrun {
namespace {

constexpr double kUnknownPenalty = 10;  // below the worst score, as in SentencePiece

/// Texts, byte by byte, so that all those that begin at a place are found in one walk.
class Trie {
 public:
  void add(std::string_view text, int64_t value) {
    uint32_t node = 0;
    for (const char byte : text) {
      const auto [place, is_new] = children_.emplace(step(node, byte), static_cast<uint32_t>(values_.size()));
      if (is_new) values_.push_back(-1);
      node = place->second;
    }
    values_[node] = value;
  }

  /// Calls `take(length, value)` for each text that `text` begins with, the shortest first.
  template <class Take>
  void each_prefix(std::string_view text, const Take& take) const {
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      const auto child = children_.find(step(node, text[i]));
      if (child == children_.end()) return;
      node = child->second;
      if (values_[node] >= 0) take(i + 1, values_[node]);
    }
  }

 private:
  struct StepHash {
    size_t operator()(uint64_t step) const { return splitmix64(step); }
  };
  static uint64_t step(uint32_t node, char byte) { return uint64_t{node} << 8 | static_cast<unsigned char>(byte); }

  std::unordered_map<uint64_t, uint32_t, StepHash> children_;
  std::vector<int64_t> values_ = {-1};
};

class Unigram final : public TextModel {
 public:
  Unigram(Vocabulary vocabulary, std::vector<double> scores, std::optional<int64_t> unknown, bool byte_fallback)
      : TextModel(std::move(vocabulary)), scores_(std::move(scores)), unknown_(unknown), byte_fallback_(byte_fallback) {
    for (size_t id = 0; id < scores_.size(); ++id) {
      trie_.add(*vocabulary_.token(static_cast<int64_t>(id)), static_cast<int64_t>(id));
      unknown_score_ = std::min(unknown_score_, scores_[id]);
    }
    unknown_score_ -= kUnknownPenalty;
  }

  void encode(std::string_view word, std::vector<int64_t>& ids) const override {
    std::vector<std::string_view> parts;
    const std::vector<Best> best = best_paths(word);
    for (size_t end = word.size(); end > 0;) {
      const bool unknown = unknown_ && best[end].id == *unknown_;
      size_t begin = best[end].begin;
      while (unknown && begin > 0 && best[begin].id == *unknown_) begin = best[begin].begin;
      parts.push_back(word.substr(begin, end - begin));
      end = begin;
    }
    std::reverse(parts.begin(), parts.end());
    for (const std::string_view part : parts) add(part, ids);
  }

 private:
  /// The best way to a place in a word: its last token, and where that begins.
  struct Best {
    int64_t id = -1;
    double score = 0;
    size_t begin = 0;
    bool reached = false;

    void offer(int64_t other_id, double other_score, size_t other_begin) {
      if (!reached || other_score > score) *this = {other_id, other_score, other_begin, true};
    }
  };

  std::vector<Best> best_paths(std::string_view word) const {
    std::vector<Best> best(word.size() + 1);
    for (size_t begin = 0; begin < word.size();) {
      const size_t one = unicode::length(word[begin]);
      const double score = best[begin].score;
      bool single = false;
      trie_.each_prefix(word.substr(begin), [&](size_t length, int64_t id) {
        best[begin + length].offer(id, scores_[static_cast<size_t>(id)] + score, begin);
        single |= length == one;
      });
      if (!single && !unknown_) {
        throw DataError("\"" + std::string(word) + "\" has no tokens, and the model has none for the unknown");
      }
      if (!single) best[begin + one].offer(*unknown_, unknown_score_ + score, begin);
      begin += one;
    }
    return best;
  }

  void add(std::string_view part, std::vector<int64_t>& ids) const {
    if (const auto id = vocabulary_.find(part)) return ids.push_back(*id);
    if (byte_fallback_ && add_bytes(part, ids)) return;
    ids.push_back(*unknown_);
  }

  bool add_bytes(std::string_view part, std::vector<int64_t>& ids) const {
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    const size_t before = ids.size();
    for (const char c : part) {
      const auto byte = static_cast<unsigned char>(c);
      const auto id = vocabulary_.find(std::string{'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 15], '>'});
      if (!id) {
        ids.resize(before);
        return false;
      }
      ids.push_back(*id);
    }
    return true;
  }

  std::vector<double> scores_;  // by id
  std::optional<int64_t> unknown_;
  double unknown_score_ = std::numeric_limits<double>::infinity();
  bool byte_fallback_;
  Trie trie_;
};

/// The number that Hugging Face's tokenizers read where a file says `exact` in its shortest spelling: its JSON reader
/// divides the digits, as a whole number, by a power of ten, and is off by the last bit of one score in ten. Between
/// segmentations that are equally good, that bit decides.
double score_as_peers_read_it(double exact) {
  std::array<char, 32> text{};
  char* const first = text.data();
  const char* const end = std::to_chars(first, first + text.size(), std::abs(exact), std::chars_format::scientific).ptr;
  const char* const mark = std::find<const char*>(first, end, 'e');
  uint64_t digits = 0;
  int exponent = 0;
  for (const char* at = first; at != mark; ++at) {
    if (*at == '.') continue;
    digits = digits * 10 + static_cast<uint64_t>(*at - '0');
    if (at != first) --exponent;
  }
  int shift = 0;
  std::from_chars(mark[1] == '+' ? mark + 2 : mark + 1, end, shift);
  exponent += shift;
  constexpr int kLargestPower = 308;
  if (std::abs(exponent) > kLargestPower) return exact;
  const double power = std::stod("1e" + std::to_string(std::abs(exponent)));
  const auto whole = static_cast<double>(digits);
  return std::copysign(exponent < 0 ? whole / power : whole * power, exact);
}

}  // namespace

std::unique_ptr<TextModel> unigram_model(Vocabulary vocabulary, std::vector<double> scores,
                                         std::optional<int64_t> unknown, bool byte_fallback) {
  return std::make_unique<Unigram>(std::move(vocabulary), std::move(scores), unknown, byte_fallback);
}

std::unique_ptr<TextModel> read_unigram_model(const JsonNode& node) {
  node.only({"type", "vocab", "unk_id", "byte_fallback"});
  const JsonNode list = node.at("vocab");
  if (!list.value().is_array()) list.fail("expected a list of [token, score]");
  Vocabulary vocabulary;
  std::vector<double> scores;
  for (const nlohmann::json& item : list.value()) {
    const auto id = static_cast<int64_t>(scores.size());
    const JsonNode piece(list.file(), item, list.path() + "[" + std::to_string(id) + "]");
    const std::vector<JsonNode> pair = piece.items();
    if (pair.size() != 2) piece.fail("expected [token, score]");
    const std::string token = pair[0].text();
    if (!vocabulary.add(token, id)) piece.fail("the token \"" + token + "\" is listed twice");
    scores.push_back(score_as_peers_read_it(pair[1].number()));
  }
  std::optional<int64_t> unknown;
  if (const auto id = node.find("unk_id")) unknown = id->integer(0, static_cast<int64_t>(scores.size()) - 1);
  return unigram_model(std::move(vocabulary), std::move(scores), unknown, node.flag("byte_fallback", false));
}

}  // namespace trainrun
