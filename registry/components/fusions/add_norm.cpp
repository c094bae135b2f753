#include "registry/graph/fusion.h"
#include "registry/graph/graph.h"

// A sum and its normalization: a block's residual sum and the norm of what comes next (before attention, as GPT-2
// has it; after it, as BERT has it). The sum itself may be read by others, too.

namespace trainrun {
namespace {

class AddNorm : public Operation {
 public:
  explicit AddNorm(const FusedLayers& layers)
      : sum_(layers["sum"].layer.operation), norm_(layers["norm"].layer.operation) {}
  Tensors run(const Tensors& inputs) const override {
    const at::Tensor sum = sum_->run(inputs)[0];
    return {norm_->run({sum})[0], sum};
  }

 private:
  std::shared_ptr<const Operation> sum_;
  std::shared_ptr<const Operation> norm_;
};

}  // namespace

void add_add_norm(FusionRegistry& fusions) {
  fusions.add({"AddNorm",
               "a sum and the LayerNorm or RMSNorm that reads it, as one step, bit for bit",
               {.nodes = {{"sum", {"Add"}}, {"norm", {"LayerNorm", "RMSNorm"}, {"sum"}}}, .gives = {"norm", "sum"}},
               [](const FusedLayers& layers) { return std::make_shared<AddNorm>(layers); }});
}

}  // namespace trainrun
