#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "registry/kinds/generation_options.h"

namespace trainrun {

using TokenList = std::vector<int64_t>;

/// How a language model continues a text, with what only a folder's generation_config.json says. What is about
/// probabilities counts, like temperature, only where tokens are drawn.
struct GenerationSettings : GenerationOptions {
  GenerationSettings() = default;
  GenerationSettings(GenerationOptions options)  // NOLINT(google-explicit-constructor): most say nothing more
      : GenerationOptions(std::move(options)) {}

  std::optional<int64_t> max_length;  // in place of max_new_tokens: of the text with its prompt
  int64_t min_length = 0;             // of the text with its prompt, before a token may end it
  int64_t min_new_tokens = 0;
  std::vector<std::pair<TokenList, double>> sequence_bias;  // added to the logit of the last where the others came
  int64_t no_repeat_ngram_size = 0;            // so many tokens in a row come once only; 0: they may come again
  std::vector<TokenList> bad_words_ids;        // tokens in a row that do not come
  TokenList suppress_tokens;                   // do not come
  TokenList begin_suppress_tokens;             // do not come first
  std::optional<int64_t> forced_bos_token_id;  // the second token, where the prompt is one
  TokenList forced_eos_token_id;               // the last one that there is room for
  std::optional<std::pair<int64_t, double>> exponential_decay_length_penalty;  // from so many new tokens; the factor
  std::optional<double> top_h;  // only the most probable tokens up to this share of their entropy
  std::optional<double> min_p;  // only tokens of this share of the greatest probability
  double typical_p = 1;         // only the most typical tokens that together are so probable; 1: all
  double epsilon_cutoff = 0;    // only tokens that are so probable
  double eta_cutoff = 0;        // the same, the less, the more even the probabilities are
};

}  // namespace trainrun
