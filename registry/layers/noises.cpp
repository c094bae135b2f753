#include <ATen/TensorOperators.h>
#include <ATen/ops/randn_like.h>
#include <torch/nn/module.h>

#include "registry/kinds/layer.h"

namespace trainrun {
namespace {

/// Source: Kingma & Welling 2014, "Auto-Encoding Variational Bayes", section 2.4.
struct GaussianSample {
  static void describe(Fields<GaussianSample>&) {}
  Layer build(const LayerInputs& in) const {
    in.require_inputs(2, 2);
    if (in.shape(0) != in.shape(1)) {
      throw LayerError("mean " + shape_text(in.shape(0)) + " and log_variance " + shape_text(in.shape(1)) +
                       " must have the same shape");
    }
    const auto mode = std::make_shared<torch::nn::Module>();  // knows training from evaluation
    return {mode,
            [mode](const Tensors& inputs) -> Tensors {
              if (!mode->is_training()) return {inputs[0] * 1};
              return {inputs[0] + (inputs[1] * 0.5).exp() * at::randn_like(inputs[0])};
            },
            {.random = true}};
  }
  void onnx(OnnxForm& form) const { form.give(form.input(0)); }
};

}  // namespace

void add_noises(LayerRegistry& layers) {
  layers.add<GaussianSample>("GaussianSample",
                             "draws from normal distributions while training, and returns their means in evaluation; "
                             "inputs: [mean, log_variance]");
}

}  // namespace trainrun
