#include <torch/nn/modules/activation.h>

#include "registry/layer.h"

namespace trainrun {
namespace {

struct ReLU {
  bool inplace = false;
  static void describe(Fields<ReLU>& f) {
    f.optional("inplace", &ReLU::inplace).doc("overwrite the input; saves memory where nothing else reads it");
  }
  Layer build(const LayerInputs&) const { return layer_of(torch::nn::ReLU(torch::nn::ReLUOptions().inplace(inplace))); }
};

struct GELU {
  std::string approximate = "none";
  static void describe(Fields<GELU>& f) {
    f.optional("approximate", &GELU::approximate)
        .one_of({"none", "tanh"})
        .doc("the tanh formula instead of the error function");
  }
  Layer build(const LayerInputs&) const {
    return layer_of(torch::nn::GELU(torch::nn::GELUOptions().approximate(approximate)));
  }
};

}  // namespace

void add_activations(LayerRegistry& layers) {
  layers.add<ReLU>("ReLU", "max(0, x)");
  layers.add<GELU>("GELU", "Gaussian error linear unit, x times the normal distribution function of x");
}

}  // namespace trainrun
