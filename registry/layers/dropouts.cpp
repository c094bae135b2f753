#include <torch/nn/modules/dropout.h>

#include "registry/layer.h"

namespace trainrun {
namespace {

/// Dropout in all its forms: `Module` is LibTorch's.
template <class Module>
struct DropoutOf {
  double p = 0.5;
  bool inplace = false;
  static void describe(Fields<DropoutOf>& f) {
    f.optional("p", &DropoutOf::p).at_least(0).at_most(1).doc("probability of a zero");
    f.optional("inplace", &DropoutOf::inplace).doc("overwrite the input");
  }
  Layer build(const LayerInputs&) const { return layer_of(Module(torch::nn::DropoutOptions().p(p).inplace(inplace))); }
};

}  // namespace

void add_dropouts(LayerRegistry& layers) {
  layers.add<DropoutOf<torch::nn::Dropout>>("Dropout",
                                            "zeroes elements at random while training, and scales the rest up");
  layers.add<DropoutOf<torch::nn::Dropout2d>>("Dropout2d",
                                              "zeroes whole feature maps of [N, C, H, W] at random while training");
}

}  // namespace trainrun
