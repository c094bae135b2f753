#include "registry/formats/text/tokenizer.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "registry/language/error.h"

namespace trainrun {

Encoding Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  return encode({text, std::nullopt}, std::nullopt, add_special_tokens);
}

Encoding Tokenizer::encode_pair(std::string_view first, std::string_view second, bool add_special_tokens) const {
  return encode({first, second}, std::nullopt, add_special_tokens);
}

std::vector<Encoding> encode_batch(const Tokenizer& tokenizer, const std::vector<TextPair>& texts,
                                   const std::optional<Truncation>& truncation, bool add_special_tokens) {
  constexpr int64_t kTextsAtOnce = 16;
  std::vector<Encoding> encodings(texts.size());
  at::parallel_for(0, static_cast<int64_t>(texts.size()), kTextsAtOnce, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      encodings[i] = tokenizer.encode(texts[i], truncation, add_special_tokens);
    }
  });
  return encodings;
}

namespace {

/// The longer text gives tokens until both are equally long, then both do; if `room` is odd, the one that was longer
/// keeps one more.
KeptTokens longest_first(int64_t first, int64_t second, int64_t room) {
  int64_t shorter = std::min(first, second);
  int64_t longer = shorter > room ? shorter : std::max(shorter, room - shorter);
  if (shorter + longer > room) {
    shorter = room / 2;
    longer = room - shorter;
  }
  return first > second ? KeptTokens{longer, shorter} : KeptTokens{shorter, longer};
}

}  // namespace

KeptTokens truncated_lengths(int64_t first, std::optional<int64_t> second, int64_t room,
                             Truncation::Strategy strategy) {
  const int64_t surplus = first + second.value_or(0) - room;
  if (surplus <= 0) return {first, second.value_or(0)};
  if (room == 0) return {0, 0};
  if (strategy == Truncation::Strategy::kLongestFirst) {
    return second ? longest_first(first, *second, room) : KeptTokens{room, 0};
  }
  const bool cut_first = strategy == Truncation::Strategy::kOnlyFirst;
  if (!cut_first && !second) throw DataError("there is no second text to cut: truncation is \"only_second\"");
  const int64_t length = cut_first ? first : *second;
  if (length <= surplus) {
    throw DataError("the " + std::string(cut_first ? "first" : "second") + " text, which alone is to be cut, has " +
                    std::to_string(length) + " tokens, and " + std::to_string(surplus) + " are too many");
  }
  return cut_first ? KeptTokens{first - surplus, second.value_or(0)} : KeptTokens{first, *second - surplus};
}

}  // namespace trainrun
