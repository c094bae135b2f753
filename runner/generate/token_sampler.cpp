#include "runner/generate/token_sampler.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/isneginf.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <limits>
#include <set>

namespace trainrun {
namespace {

using at::Tensor;
constexpr double kNever = -std::numeric_limits<double>::infinity();

/// Source: Keskar et al. 2019, "CTRL: A Conditional Transformer Language Model for Controllable Generation".
Tensor penalized(const Tensor& scores, const std::vector<int64_t>& text, double penalty) {
  if (penalty == 1) return scores;
  const std::set<int64_t> distinct(text.begin(), text.end());
  const Tensor tokens = at::tensor(std::vector<int64_t>(distinct.begin(), distinct.end()), at::kLong);
  const Tensor own = scores.index_select(0, tokens);
  return scores.index_copy(0, tokens, at::where(own < 0, own * penalty, own / penalty));
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

}  // namespace

Tensor processed_scores(const Tensor& logits, const std::vector<int64_t>& text, const GenerationOptions& options) {
  Tensor scores = penalized(logits, text, options.repetition_penalty);
  if (!options.do_sample) return scores;
  const Tensor tempered = options.temperature == 1 ? scores : scores / options.temperature;
  return nucleus(best_k(tempered, options.top_k), options.top_p);
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
