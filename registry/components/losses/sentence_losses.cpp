#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cosine_similarity.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/norm.h>
#include <ATen/ops/zeros.h>

#include "registry/components/losses/batch_of_ranks.h"
#include "registry/components/losses/loss_of.h"

// Losses of vectors of texts, pairs [N, 2, D] or triplets [N, 3, D]: those of the package sentence-transformers 6.2.

namespace trainrun {
namespace {

void require_vectors(const LayerInputs& in, int64_t least, int64_t most) {
  in.require_dims(3, 3, "[N, texts, D]");
  const int64_t texts = in.shape(0)[1];
  if (texts >= least && texts <= most) return;
  throw LayerError("it needs vectors of " + std::string(most == 2 ? "pairs [N, 2, D]" : "pairs or more [N, texts, D]") +
                   ", not " + shape_text(in.shape(0)));
}

/// [N]: how much the first of each pair is like the second.
at::Tensor cosines_of(const at::Tensor& pairs) {
  return at::cosine_similarity(pairs.select(1, 0), pairs.select(1, 1), 1, 1e-8);
}

/// Throws LayerError unless there is one score for each pair.
void require_scores(const LayerInputs& in) {
  require_vectors(in, 2, 2);
  const at::IntArrayRef scores = in.shape(1);
  const bool fits = scores.size() == 1 || (scores.size() == 2 && scores[1] == 1);
  if (!fits) throw LayerError("the scores are [N] or [N, 1], a number for each pair, not " + shape_text(scores));
}

/// Sources: Henderson et al. 2017, "Efficient Natural Language Response Suggestion"; van den Oord et al. 2018, InfoNCE.
struct MultipleNegativesRankingLoss {
  double scale = 20;
  bool symmetric = false;
  bool gather_across_devices = true;

  static void describe(Fields<MultipleNegativesRankingLoss>& f) {
    using M = MultipleNegativesRankingLoss;
    f.optional("scale", &M::scale).greater_than(0).doc("cosines are multiplied by this: 1 / temperature");
    f.optional("symmetric", &M::symmetric)
        .doc("also have each positive find its anchor among all anchors; the loss is the mean of both");
    f.optional("gather_across_devices", &M::gather_across_devices)
        .doc(
            "whether an anchor is compared with the texts of all ranks, so that N ranks learn as one with N times the "
            "batch; false: with its own rank's");
  }
  static LossFacts facts(const LayerInputs&) {
    LossFacts facts;
    facts.target = LossFacts::Target::kOther;
    return facts;
  }
  Loss build(const LayerInputs& in) const {
    require_roles(in, {"output"});
    require_vectors(in, 2, std::numeric_limits<int64_t>::max());
    const auto ranks = std::make_shared<BatchOfRanks>();
    return {gather_across_devices ? ranks : nullptr,
            [own = *this, ranks](const Tensors& inputs) { return own.of(inputs[0], *ranks); }};
  }

 private:
  at::Tensor of(const at::Tensor& texts, const BatchOfRanks& ranks) const {
    // As torch.nn.functional.normalize.
    const at::Tensor unit = texts / at::norm(texts, 2, {2}, /*keepdim=*/true).clamp_min(1e-12);
    const at::Tensor all = gather_across_devices ? ranks.gather(unit) : unit;  // [M, texts, D]
    const int64_t first = gather_across_devices ? ranks.first_row(unit.size(0)) : 0;
    const at::Tensor own = at::arange(first, first + unit.size(0), unit.options().dtype(at::kLong));
    // All positives, then all negatives.
    const at::Tensor candidates = all.slice(1, 1).transpose(0, 1).flatten(0, 1);
    const at::Tensor loss = ranking(unit.select(1, 0), candidates, own);
    return symmetric ? (loss + ranking(unit.select(1, 1), all.select(1, 0), own)) / 2 : loss;
  }
  at::Tensor ranking(const at::Tensor& asked, const at::Tensor& candidates, const at::Tensor& own) const {
    return at::cross_entropy_loss(at::matmul(asked, candidates.t()) * scale, own);
  }
};

/// Source: Su 2022, "CoSENT"; Huang et al. 2024, the same.
struct CoSENTLoss {
  double scale = 20;
  static void describe(Fields<CoSENTLoss>& f) {
    f.optional("scale", &CoSENTLoss::scale).greater_than(0).doc("cosines are multiplied by this");
  }
  static LossFacts facts(const LayerInputs&) {
    LossFacts facts;
    facts.target = LossFacts::Target::kOther;
    return facts;
  }
  Loss build(const LayerInputs& in) const {
    require_roles(in, {"output", "score"});
    require_scores(in);
    return {nullptr, [scale = scale](const Tensors& inputs) {
              const at::Tensor scores = inputs[1].flatten();
              const at::Tensor scaled = cosines_of(inputs[0]) * scale;
              // Of each two pairs, of which the first should be less alike than the second.
              const at::Tensor differences = scaled.unsqueeze(1) - scaled.unsqueeze(0);
              const at::Tensor counts = scores.unsqueeze(1) < scores.unsqueeze(0);
              const at::Tensor wrong = differences.masked_select(counts);
              return at::logsumexp(at::cat({at::zeros({1}, wrong.options()), wrong}), 0);
            }};
  }
};

struct CosineSimilarityLoss {
  static void describe(Fields<CosineSimilarityLoss>&) {}
  static LossFacts facts(const LayerInputs&) {
    LossFacts facts;
    facts.target = LossFacts::Target::kNumbers;
    return facts;
  }
  Loss build(const LayerInputs& in) const {
    require_roles(in, {"output", "score"});
    require_scores(in);
    return {nullptr, [](const Tensors& inputs) {
              const at::Tensor cosines = cosines_of(inputs[0]);
              return at::mse_loss(cosines, inputs[1].flatten().to(cosines.scalar_type()));
            }};
  }
};

}  // namespace

void add_sentence_losses(LossRegistry& losses) {
  losses.add<MultipleNegativesRankingLoss>(
      "MultipleNegativesRankingLoss",
      "InfoNCE: each anchor should be more like its positive than like any other positive and any negative of the "
      "batch; "
      "reads vectors [N, 2, D] of anchors and positives, or [N, 3, D] with negatives");
  losses.add<CoSENTLoss>(
      "CoSENTLoss",
      "pairs with a higher score should be more alike than those with a lower one, by their cosines; "
      "inputs: vectors [N, 2, D] and scores");
  losses.add<CosineSimilarityLoss>(
      "CosineSimilarityLoss",
      "the squared difference between a pair's cosine and its score; inputs: vectors [N, 2, D] and scores");
}

}  // namespace trainrun
