// The numbers that the model gives, as they are: embeddings, reconstructions.
#include "registry/kinds/layer_shapes.h"
#include "registry/language/error.h"
#include "runner/predict/outcome.h"

namespace trainrun {
namespace {

class RawOutcome : public Outcome {
 public:
  explicit RawOutcome(int64_t rows_per_sample) : rows_per_sample_(rows_per_sample) {}
  ResultColumns columns(const PredictedBatch& batch) override {
    const at::Tensor& output = batch.outputs.at(0);
    if (output.dim() == 0 || output.size(0) != batch.batch.size()) {
      throw Error("predict: the model's output is " + shape_text(output.sizes()) + " for a batch of " +
                  std::to_string(batch.batch.size()) +
                  " samples, and not a row for each; models that read two texts for each sample have no predictions");
    }
    if (rows_per_sample_ == 1) return {{{"output", output}}};
    if (output.dim() < 2 || output.size(1) != rows_per_sample_) {
      throw Error("predict: the model gives " + shape_text(output.sizes()) + ", which is nothing for each of the " +
                  std::to_string(rows_per_sample_) + " steps");
    }
    return {{{"output", output.flatten(0, 1)}}};
  }

 private:
  int64_t rows_per_sample_;
};

}  // namespace

std::unique_ptr<Outcome> make_raw_outcome(const OutcomeInputs& inputs) {
  return std::make_unique<RawOutcome>(inputs.rows_per_sample);
}

}  // namespace trainrun
