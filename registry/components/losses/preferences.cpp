#include "registry/components/losses/preferences.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/where.h>

namespace trainrun {
namespace {

void check_logits(const LayerInputs& in, std::optional<size_t> reference) {
  const at::IntArrayRef logits = in.shape(0);
  if (logits.size() != 3) throw LayerError("its output is [2 N, T, C], not " + shape_text(logits));
  if (reference && in.shape(*reference) != logits) {
    throw LayerError("the output is " + shape_text(logits) + " and the reference's " +
                     shape_text(in.shape(*reference)) + "; they must have the same shape");
  }
  for (const size_t labels : {1, 2}) {
    const bool fits = in.shape(labels).size() == 2 && in.shape(labels)[1] == logits[1] &&
                      in.examples[labels].scalar_type() == at::kLong;
    if (!fits) {
      throw LayerError("labels are integers [N, " + std::to_string(logits[1]) + "], not " +
                       shape_text(in.shape(labels)));
    }
  }
}

}  // namespace

at::Tensor log_probabilities(const at::Tensor& logits, const at::Tensor& labels, bool mean) {
  const at::Tensor counts = labels >= 0;
  const at::Tensor each = at::log_softmax(logits, -1).gather(2, labels.clamp_min(0).unsqueeze(2));
  const at::Tensor sum = at::where(counts, each.squeeze(2), 0).sum(1);
  return mean ? sum / counts.sum(1).clamp_min(1) : sum;
}

void check_preferences(const LayerInputs& in, bool has_reference) {
  check_logits(in, has_reference ? std::optional<size_t>(3) : std::nullopt);
}

Gains gains_of(const Tensors& inputs, bool mean) {
  const at::Tensor labels = at::cat({inputs[1], inputs[2]});
  TORCH_CHECK(labels.size(0) == inputs[0].size(0), "the output is of ", inputs[0].size(0), " texts, but there are ",
              inputs[1].size(0), " chosen and ", inputs[2].size(0),
              " rejected ones; have the model read both, the chosen ones first");
  at::Tensor gained = log_probabilities(inputs[0], labels, mean);
  if (inputs.size() > 3) gained = gained - log_probabilities(inputs[3], labels, mean);
  return halves_of(gained);
}

void check_desirable(const LayerInputs& in) {
  check_logits(in, 4);
  if (in.shape(3).size() != 1 || in.examples[3].scalar_type() != at::kLong) {
    throw LayerError("label is an integer [N], 1 where an answer is desirable, not " + shape_text(in.shape(3)));
  }
}

DesirableGains desirable_gains(const Tensors& inputs) {
  const auto [own, mismatched] = gains_of({inputs[0], inputs[1], inputs[2], inputs[4]}, /*mean=*/false);
  return {own, mismatched};
}

void check_scores(const LayerInputs& in) {
  const at::IntArrayRef scores = in.shape(0);
  if (scores.size() == 1 || (scores.size() == 2 && scores[1] == 1)) return;
  throw LayerError("its output is a score of each text, [2 N, 1], not " + shape_text(scores));
}

Gains halves_of(const at::Tensor& scores) {
  const at::Tensor flat = scores.dim() == 2 ? scores.squeeze(1) : scores;
  TORCH_CHECK(flat.size(0) % 2 == 0, "the output is of ", flat.size(0),
              " texts, but each pair has two; have the model read both, the chosen ones first");
  const Tensors halves = flat.chunk(2);
  return {halves[0], halves[1]};
}

}  // namespace trainrun
