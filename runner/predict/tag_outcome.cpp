// A class of each word of a text: its name, and how probable it is.
#include <ATen/TensorOperators.h>
#include <ATen/ops/softmax.h>

#include "registry/text_data/tagged_texts.h"
#include "runner/predict/outcome.h"

namespace trainrun {
namespace {

using nlohmann::json;

class TagOutcome : public Outcome {
 public:
  TagOutcome(const OutcomeInputs& inputs, int64_t class_dim)
      : loss_(inputs.loss),
        class_dim_(class_dim),
        names_(names_of_classes(*inputs.target, inputs.output().size(class_dim))) {}

  ResultColumns columns(const PredictedBatch& batch) override {
    const at::Tensor scores = batch.outputs.at(0).movedim(class_dim_, 2);  // [N, T, C]
    const auto of_logits = [](const at::Tensor& x) { return at::softmax(x, 2); };
    const auto [best, places] = probabilities_of(loss_.of_classes, scores, of_logits).max(2);
    const at::Tensor probabilities = best.contiguous();
    const at::Tensor classes = places.contiguous();
    const at::Tensor words = batch.batch.at(kWordIds).cpu().contiguous();
    const at::Tensor counts = batch.batch.at(kNumWords).cpu();
    std::vector<json> tags;
    std::vector<json> of_tags;
    for (int64_t row = 0; row < words.size(0); ++row) {
      const auto count = static_cast<size_t>(counts[row].item<int64_t>());
      std::vector<json> own_tags(count);  // null: of a word that has no token
      std::vector<json> own_probabilities(count);
      for (int64_t token = words.size(1); token-- > 0;) {  // the first token of a word has the last say
        const int64_t at = row * words.size(1) + token;
        const int64_t word = words.const_data_ptr<int64_t>()[at];
        if (word < 0) continue;
        own_tags[static_cast<size_t>(word)] = names_[static_cast<size_t>(classes.const_data_ptr<int64_t>()[at])];
        own_probabilities[static_cast<size_t>(word)] = probabilities.const_data_ptr<double>()[at];
      }
      tags.emplace_back(std::move(own_tags));
      of_tags.emplace_back(std::move(own_probabilities));
    }
    return {{{"tags", std::move(tags)}}, {{"probabilities", std::move(of_tags)}}};
  }

 private:
  LossFacts loss_;
  int64_t class_dim_;
  std::vector<std::string> names_;
};

}  // namespace

std::unique_ptr<Outcome> make_tag_outcome(const OutcomeInputs& inputs) {
  const bool are_words = inputs.output().dim() == 3 && inputs.loss.of_classes != LossFacts::Scores::kNone &&
                         inputs.target && !inputs.target->class_names.empty() && inputs.has_words;
  return are_words ? std::make_unique<TagOutcome>(inputs, inputs.class_dim) : nullptr;
}

}  // namespace trainrun
