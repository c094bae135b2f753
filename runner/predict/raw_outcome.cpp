// The numbers that the model gives, as they are: embeddings, reconstructions.
#include "runner/predict/outcome.h"

namespace trainrun {
namespace {

class RawOutcome : public Outcome {
 public:
  ResultColumns columns(const PredictedBatch& batch) override { return {{{"output", batch.outputs.at(0)}}}; }
};

}  // namespace

std::unique_ptr<Outcome> make_raw_outcome(const OutcomeInputs&) { return std::make_unique<RawOutcome>(); }

}  // namespace trainrun
