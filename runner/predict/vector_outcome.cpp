// Vectors of texts: those of single texts, or how much the texts of a pair are alike.
#include <ATen/ops/cosine_similarity.h>

#include <array>

#include "runner/predict/outcome.h"

namespace trainrun {
namespace {

constexpr std::array kTexts = {"anchor", "positive", "negative"};

class VectorOutcome : public Outcome {
 public:
  ResultColumns columns(const PredictedBatch& batch) override {
    const at::Tensor& vectors = batch.outputs.at(0);  // [N, texts, D]
    ResultColumns columns;
    for (int64_t i = 1; i < vectors.size(1); ++i) {
      const std::string name = kTexts.at(static_cast<size_t>(i));
      if (batch.batch.at(name + "_attention_mask").eq(0).all().item<bool>()) continue;  // the data have no such texts
      const at::Tensor cosine =
          at::cosine_similarity(vectors.select(1, 0).to(at::kDouble), vectors.select(1, i).to(at::kDouble), 1, 1e-8);
      columns.push_back({{columns.empty() ? "cosine" : "cosine(" + name + ")", cosine}});
    }
    if (columns.empty()) columns.push_back({{"embedding", vectors.select(1, 0)}});
    return columns;
  }
};

}  // namespace

std::unique_ptr<Outcome> make_vector_outcome(const OutcomeInputs& inputs) {
  const bool are_pairs = inputs.output().dim() == 3 && inputs.contract.field("anchor_input_ids") &&
                         inputs.output().size(1) <= static_cast<int64_t>(kTexts.size());
  return are_pairs ? std::make_unique<VectorOutcome>() : nullptr;
}

}  // namespace trainrun
