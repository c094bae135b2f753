#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainrun {

/// How a language model continues a text. Names, order and meaning of what changes the logits are those of
/// transformers' GenerationConfig: repetition_penalty, then, where tokens are drawn, temperature, top_k, top_p.
struct GenerationOptions {
  int64_t max_new_tokens = 100;
  bool do_sample = false;         // false: always the most probable token
  double temperature = 1;         // > 0; the logits are divided by it
  int64_t top_k = 50;             // only so many of the most probable tokens are drawn; 0: all
  double top_p = 1;               // only the fewest tokens that together are so probable; 1: all
  double repetition_penalty = 1;  // > 0; logits of tokens that the text has are divided by it, negative ones multiplied
  uint64_t seed = 0;
  int64_t num_samples = 1;          // continuations of each prompt
  std::vector<std::string> stop;    // where one of these would come next, the text ends
  std::vector<int64_t> end_tokens;  // tokens that end a text and are no part of it
};

/// Options of generation as a user gives them; nullopt for those that are not given.
struct GenerationWishes {
  std::optional<int64_t> max_new_tokens;
  std::optional<double> temperature;  // 0: always the most probable token
  std::optional<int64_t> top_k;
  std::optional<double> top_p;
  std::optional<double> repetition_penalty;
};

/// `options` with these wishes over them: temperature, top_k or top_p mean that tokens are drawn.
GenerationOptions with_wishes(GenerationOptions options, const GenerationWishes& wishes);

}  // namespace trainrun
