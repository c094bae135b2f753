#include "runner/generate/token_sampler.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/nansum.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "registry/language/error.h"

namespace trainrun {
namespace {

using at::Tensor;
constexpr double kNever = -std::numeric_limits<double>::infinity();

/// What the processors of one step read: the text, and what is asked for.
struct Step {
  const std::vector<int64_t>& text;
  int64_t prompt_length;
  const GenerationSettings& options;
  int64_t length() const { return static_cast<int64_t>(text.size()); }
  int64_t num_new() const { return length() - prompt_length; }
};

/// `scores`, with `score` for those of `tokens` that there are.
Tensor with_score(const Tensor& scores, const TokenList& tokens, double score) {
  const Tensor changed = scores.clone();
  for (const int64_t token : tokens) {
    if (token >= 0 && token < changed.numel()) changed.mutable_data_ptr<float>()[token] = static_cast<float>(score);
  }
  return changed;
}

Tensor only(const Tensor& scores, const TokenList& tokens) {
  return with_score(at::full_like(scores, kNever), tokens, 0);
}

/// Whether `text` ends with all of `tokens` but the last.
bool leads_to(const std::vector<int64_t>& text, const TokenList& tokens) {
  return tokens.size() <= text.size() + 1 &&
         std::equal(tokens.begin(), tokens.end() - 1, text.end() - static_cast<std::ptrdiff_t>(tokens.size() - 1));
}

Tensor biased(const Tensor& scores, const Step& step) {
  if (step.options.sequence_bias.empty()) return scores;
  const Tensor changed = scores.clone();
  for (const auto& [tokens, bias] : step.options.sequence_bias) {
    if (leads_to(step.text, tokens)) changed.mutable_data_ptr<float>()[tokens.back()] += static_cast<float>(bias);
  }
  return changed;
}

/// Source: Keskar et al. 2019, "CTRL: A Conditional Transformer Language Model for Controllable Generation".
Tensor penalized(const Tensor& scores, const Step& step) {
  const double penalty = step.options.repetition_penalty;
  if (penalty == 1) return scores;
  const std::set<int64_t> distinct(step.text.begin(), step.text.end());
  const Tensor tokens = at::tensor(std::vector<int64_t>(distinct.begin(), distinct.end()), at::kLong);
  const Tensor own = scores.index_select(0, tokens);
  return scores.index_copy(0, tokens, at::where(own < 0, own * penalty, own / penalty));
}

Tensor without_repetitions(const Tensor& scores, const Step& step) {
  const int64_t size = step.options.no_repeat_ngram_size;
  if (size <= 0 || step.length() < size) return scores;
  TokenList banned;
  for (auto begin = step.text.begin(); step.text.end() - begin >= size; ++begin) {
    if (leads_to(step.text, {begin, begin + size})) banned.push_back(*(begin + size - 1));
  }
  return with_score(scores, banned, kNever);
}

Tensor without_bad_words(const Tensor& scores, const Step& step) {
  TokenList banned;
  for (const TokenList& word : step.options.bad_words_ids) {
    const bool is_end = word.size() == 1 && std::ranges::count(step.options.end_tokens, word[0]) > 0;
    if (!is_end && leads_to(step.text, word)) banned.push_back(word.back());
  }
  return banned.empty() ? scores : with_score(scores, banned, kNever);
}

/// Too short to end, or at a place where only one token may come.
Tensor of_length(const Tensor& scores, const Step& step) {
  const GenerationSettings& options = step.options;
  const bool is_short = step.length() < options.min_length || step.num_new() < options.min_new_tokens;
  const bool is_last = step.num_new() == most_new_tokens(options, step.prompt_length) - 1;
  Tensor result = is_short ? with_score(scores, options.end_tokens, kNever) : scores;
  if (options.forced_bos_token_id && step.length() == 1) result = only(result, {*options.forced_bos_token_id});
  if (!options.forced_eos_token_id.empty() && is_last) result = only(result, options.forced_eos_token_id);
  return result;
}

/// The longer the text, the more an end of it is worth.
Tensor with_growing_end(const Tensor& scores, const Step& step) {
  const auto& decay = step.options.exponential_decay_length_penalty;
  if (!decay || step.num_new() <= decay->first) return scores;
  const double factor = std::pow(decay->second, static_cast<double>(step.num_new() - decay->first)) - 1;
  const Tensor changed = scores.clone();
  for (const int64_t token : std::set<int64_t>(step.options.end_tokens.begin(), step.options.end_tokens.end())) {
    if (token < 0 || token >= changed.numel()) continue;
    float& score = changed.mutable_data_ptr<float>()[token];
    if (std::isfinite(score)) score += static_cast<float>(std::abs(score) * factor);
  }
  return changed;
}

Tensor without_suppressed(const Tensor& scores, const Step& step) {
  const GenerationSettings& options = step.options;
  Tensor result = options.suppress_tokens.empty() ? scores : with_score(scores, options.suppress_tokens, kNever);
  const bool comes_second = step.prompt_length <= 1 && options.forced_bos_token_id;
  if (options.begin_suppress_tokens.empty() || step.num_new() != (comes_second ? 1 : 0)) return result;
  return with_score(result, options.begin_suppress_tokens, kNever);
}

/// Source: Potraghloo et al. 2025, "Top-H Decoding: Adapting the Creativity and Coherence with Bounded Entropy in Text
/// Generation".
Tensor of_entropy(const Tensor& scores, const std::optional<double>& share) {
  if (!share) return scores;
  constexpr int64_t kConsidered = 100;
  const auto [best, order] = at::topk(scores, std::min(kConsidered, scores.numel()));
  const Tensor logs = at::log_softmax(best, 0);
  const Tensor sums = at::cumsum(-at::exp(logs) * logs, 0);
  const Tensor is_out = at::ones({scores.numel()}, at::kBool);
  Tensor is_over = (sums <= -at::nansum(at::exp(logs) * logs) * *share).logical_not();  // so is NaN
  is_over[0].fill_(false);
  return scores.masked_fill(is_out.scatter(0, order, is_over), kNever);
}

/// Tokens with the score of the last that stays, stay.
Tensor best_k(const Tensor& scores, int64_t k) {
  if (k <= 0 || k >= scores.numel()) return scores;
  const Tensor least = std::get<0>(at::topk(scores, k))[k - 1];
  return scores.masked_fill(scores < least, kNever);
}

/// Source: Holtzman et al. 2020, "The Curious Case of Neural Text Degeneration".
Tensor nucleus(const Tensor& scores, double p) {
  if (p >= 1) return scores;
  const auto [sorted, order] = at::sort(scores);  // ascending
  Tensor is_out = at::cumsum(at::softmax(sorted, 0), 0) <= 1 - p;
  is_out[-1].fill_(false);
  return scores.masked_fill(is_out.scatter(0, order, is_out), kNever);
}

/// Source: Nguyen et al. 2024, "Turning Up the Heat: Min-p Sampling for Creative and Coherent LLM Outputs".
Tensor above_share_of_best(const Tensor& scores, const std::optional<double>& share) {
  if (!share) return scores;
  const Tensor probabilities = at::softmax(scores, 0);
  return scores.masked_fill(probabilities < probabilities.max() * *share, kNever);
}

/// Source: Meister et al. 2022, "Locally Typical Sampling".
Tensor typical(const Tensor& scores, double mass) {
  if (mass >= 1) return scores;
  const Tensor logs = at::log_softmax(scores, 0);
  const Tensor entropy = -at::nansum(logs * at::exp(logs));
  const auto [distances, order] = at::sort(at::abs(-logs - entropy));
  const Tensor sums = at::cumsum(at::softmax(scores.index_select(0, order), 0), 0);
  const int64_t last = std::min((sums < mass).sum().item<int64_t>(), scores.numel() - 1);
  Tensor is_out = distances > distances[last];
  is_out[0].fill_(false);
  return scores.masked_fill(is_out.scatter(0, order, is_out), kNever);
}

/// Only tokens that are so probable, and the best.
Tensor above(const Tensor& scores, const Tensor& probabilities, const Tensor& least) {
  return scores.masked_fill((probabilities < least) & (scores < scores.max()), kNever);
}

/// Source: Hewitt et al. 2022, "Truncation Sampling as Language Model Desmoothing".
Tensor above_cutoffs(const Tensor& scores, const GenerationSettings& options) {
  Tensor result = scores;
  const auto is_on = [](double cutoff) { return cutoff > 0 && cutoff < 1; };
  if (is_on(options.epsilon_cutoff)) {
    result = above(result, at::softmax(result, 0), at::tensor(options.epsilon_cutoff, at::kFloat));
  }
  if (is_on(options.eta_cutoff)) {
    const Tensor logs = at::log_softmax(result, 0);
    const Tensor entropy = -at::nansum(at::exp(logs) * logs);
    const Tensor epsilon = at::tensor(options.eta_cutoff, at::kFloat);
    result = above(result, at::softmax(result, 0), at::minimum(epsilon, epsilon.sqrt() * at::exp(-entropy)));
  }
  return result;
}

}  // namespace

int64_t most_new_tokens(const GenerationSettings& options, int64_t prompt_length) {
  return options.max_length ? *options.max_length - prompt_length : options.max_new_tokens;
}

void check_options(const GenerationSettings& options, int64_t vocab_size) {
  if (options.do_sample && options.temperature <= 0) {
    throw Error(
        "tokens are drawn, but the temperature is 0; write --temperature with a number above 0, or 0 for always "
        "the most probable token");
  }
  std::vector<std::pair<const char*, TokenList>> named = {{"forced_eos_token_id", options.forced_eos_token_id}};
  if (options.forced_bos_token_id) named.emplace_back("forced_bos_token_id", TokenList{*options.forced_bos_token_id});
  for (const TokenList& word : options.bad_words_ids) named.emplace_back("bad_words_ids", word);
  for (const auto& [tokens, bias] : options.sequence_bias) named.emplace_back("sequence_bias", tokens);
  for (const auto& [key, tokens] : named) {
    for (const int64_t token : tokens) {
      if (token >= 0 && token < vocab_size) continue;
      throw Error(std::string("generation_config.json: ") + key + ": " + std::to_string(token) +
                  " is not a token: the model has those from 0 to " + std::to_string(vocab_size - 1));
    }
  }
}

Tensor processed_scores(const Tensor& logits, const std::vector<int64_t>& text, int64_t prompt_length,
                        const GenerationSettings& options) {
  const Step step = {text, prompt_length, options};
  Tensor scores = logits;
  for (const auto process :
       {biased, penalized, without_repetitions, without_bad_words, of_length, with_growing_end, without_suppressed}) {
    scores = process(scores, step);
  }
  if (!options.do_sample) return scores;
  if (options.temperature != 1) scores = scores / options.temperature;
  scores = nucleus(best_k(of_entropy(scores, options.top_h), options.top_k), options.top_p);
  return above_cutoffs(typical(above_share_of_best(scores, options.min_p), options.typical_p), options);
}

int64_t chosen_token(const Tensor& scores, bool do_sample, double uniform) {
  if (!do_sample) return at::argmax(scores).item<int64_t>();
  const Tensor sums = at::cumsum(at::softmax(scores.to(at::kDouble), 0), 0).contiguous();
  const double* begin = sums.const_data_ptr<double>();
  const double* end = begin + sums.numel();
  // The first whose sum is greater has a probability of its own; rounding may leave the last sum below 1.
  const double* found = std::upper_bound(begin, end, uniform * *(end - 1));
  return std::min<int64_t>(found - begin, sums.numel() - 1);
}

}  // namespace trainrun
