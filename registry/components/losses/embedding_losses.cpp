#include <ATen/ops/cosine_embedding_loss.h>
#include <ATen/ops/hinge_embedding_loss.h>
#include <ATen/ops/margin_ranking_loss.h>
#include <ATen/ops/triplet_margin_loss.h>

#include "registry/components/losses/loss_of.h"

namespace trainrun {
namespace {

struct HingeEmbeddingLoss : AlikeInputs {
  static constexpr auto kTarget = LossFacts::Target::kOther;
  double margin = 1;
  static void describe(auto& f) {
    f.optional("margin", &HingeEmbeddingLoss::margin)
        .doc("distance from which a pair of different samples costs nothing");
  }
  at::Tensor operator()(const Tensors& in, int64_t reduction) const {
    return at::hinge_embedding_loss(in[0], in[1], margin, reduction);
  }
};

struct MarginRankingLoss : AlikeInputs {
  static constexpr auto kTarget = LossFacts::Target::kOther;
  double margin = 0;
  static std::vector<std::string> roles() { return {"input1", "input2", "target"}; }
  static void describe(auto& f) {
    f.optional("margin", &MarginRankingLoss::margin).doc("by how much one should be above the other");
  }
  at::Tensor operator()(const Tensors& in, int64_t reduction) const {
    return at::margin_ranking_loss(in[0], in[1], in[2], margin, reduction);
  }
};

struct TripletMarginLoss : AlikeInputs {
  static constexpr auto kTarget = LossFacts::Target::kOther;
  double margin = 1;
  double p = 2;
  double eps = 1e-6;
  bool swap = false;
  static std::vector<std::string> roles() { return {"anchor", "positive", "negative"}; }
  static void describe(auto& f) {
    f.optional("margin", &TripletMarginLoss::margin)
        .greater_than(0)
        .doc("by how much the negative should be farther than the positive");
    f.optional("p", &TripletMarginLoss::p).at_least(0).doc("of the distance's p-norm");
    f.optional("eps", &TripletMarginLoss::eps).at_least(0).doc("added to the differences");
    f.optional("swap", &TripletMarginLoss::swap).doc("use the positive as the anchor if it is nearer to the negative");
  }
  at::Tensor operator()(const Tensors& in, int64_t reduction) const {
    return at::triplet_margin_loss(in[0], in[1], in[2], margin, p, eps, swap, reduction);
  }
};

struct CosineEmbeddingLoss : ClassInputs {
  static constexpr auto kTarget = LossFacts::Target::kOther;
  double margin = 0;
  static std::vector<std::string> roles() { return {"input1", "input2", "target"}; }
  static void describe(auto& f) {
    f.optional("margin", &CosineEmbeddingLoss::margin)
        .at_least(-1)
        .at_most(1)
        .doc("cosine up to which a pair of different samples costs nothing");
  }
  void require(const LayerInputs& in, const std::vector<std::string>& roles) const {
    in.require_dims(2, 2, "[N, D]");
    LayerInputs first_two;
    first_two.examples = {in.examples[0], in.examples[1]};
    require_alike(first_two, roles);
    if (in.shape(2).size() == 1) return;
    throw LayerError("the target, 1 or -1 for each pair, is [N], not " + shape_text(in.shape(2)));
  }
  at::Tensor operator()(const Tensors& in, int64_t reduction) const {
    return at::cosine_embedding_loss(in[0], in[1], in[2], margin, reduction);
  }
};

}  // namespace

void add_embedding_losses(LossRegistry& losses) {
  losses.add<LossOf<HingeEmbeddingLoss>>(
      "HingeEmbeddingLoss", "the distance where the target is 1, max(0, margin - distance) where it is -1");
  losses.add<LossOf<MarginRankingLoss>>(
      "MarginRankingLoss",
      "a should be above b where the target is 1, and below it where the target is -1; inputs: [a, b, target]");
  losses.add<LossOf<TripletMarginLoss>>(
      "TripletMarginLoss",
      "the anchor should be nearer the positive than the negative; inputs: [anchor, positive, negative]");
  losses.add<LossOf<CosineEmbeddingLoss>>("CosineEmbeddingLoss",
                                          "pairs [N, D] should have a cosine of 1 where the target is 1, and at most "
                                          "the margin where it is -1; inputs: [a, b, target]");
}

}  // namespace trainrun
