#include <ATen/TensorOperators.h>
#include <ATen/ops/alpha_dropout.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/feature_alpha_dropout.h>
#include <ATen/ops/feature_dropout.h>
#include <torch/nn/module.h>

#include "registry/layers/parts.h"

namespace trainrun {
namespace {

using Drop = at::Tensor (*)(const at::Tensor& input, double p, bool train);
using DropInPlace = at::Tensor& (*)(at::Tensor& input, double p, bool train);

/// Dropout in all its forms, of inputs of kLeast to kMost dimensions.
template <Drop kDrop, DropInPlace kDropInPlace, int64_t kLeast = 1, int64_t kMost = 64, bool kOfElements = false>
struct DropoutOf {
  static constexpr bool kOverwrites = kDropInPlace != nullptr;

  double p = 0.5;
  bool inplace = false;
  static void describe(Fields<DropoutOf>& f) {
    f.optional("p", &DropoutOf::p).at_least(0).at_most(1).doc("probability of a zero");
    f.optional("inplace", &DropoutOf::inplace)
        .doc(kOverwrites ? "overwrite the input" : "without effect, as in PyTorch");
  }
  Layer build(const LayerInputs& in) const {
    in.require_dims(kLeast, kMost, kLeast == 5 ? "[N, C, D, H, W]" : kMost == 3 ? "[N, C, L]" : "[N, C, …]");
    const auto mode = std::make_shared<torch::nn::Module>();  // knows training from evaluation
    return {mode,
            [mode, *this](const Tensors& inputs) -> Tensors {
              if constexpr (kOverwrites) {
                at::Tensor input = inputs[0];
                if (inplace) return {kDropInPlace(input, p, mode->is_training())};
              }
              return {kDrop(inputs[0], p, mode->is_training())};
            },
            {.in_place = kOverwrites && inplace,
             .view = true,
             .random = p > 0,
             .pointwise = kOfElements,
             .position_wise = kOfElements,
             .capturable = true,
             .half_precision = true}};
  }
  void onnx(OnnxForm& form) const { form.give(form.input()); }
};

using Dropout = DropoutOf<at::dropout, at::dropout_, 1, 64, true>;

/// torchvision.ops.StochasticDepth. Source: Huang et al. 2016, "Deep Networks with Stochastic Depth".
struct StochasticDepth {
  double p = 0.5;
  std::string mode = "row";
  static void describe(Fields<StochasticDepth>& f) {
    f.required("p", &StochasticDepth::p).at_least(0).at_most(1).doc("probability of zeros in place of a sample");
    f.optional("mode", &StochasticDepth::mode)
        .one_of({"row", "batch"})
        .doc("whether to draw for each sample by itself, or once for the whole batch");
  }
  Layer build(const LayerInputs&) const {
    const auto module = std::make_shared<torch::nn::Module>();  // knows training from evaluation
    return {module,
            [module, *this](const Tensors& inputs) -> Tensors {
              const at::Tensor& input = inputs[0];
              if (!module->is_training() || p == 0) return {input};
              std::vector<int64_t> sizes(static_cast<size_t>(input.dim()), 1);
              if (mode == "row") sizes[0] = input.size(0);
              at::Tensor kept = at::empty(sizes, input.options()).bernoulli_(1 - p);
              if (p < 1) kept.div_(1 - p);
              return {input * kept};
            },
            {.view = true,
             .random = p > 0,
             .pointwise = true,
             .position_wise = true,
             .capturable = true,
             .half_precision = true}};
  }
  void onnx(OnnxForm& form) const { form.give(form.input()); }
};

}  // namespace

Part dropout_part(const at::Tensor& input, double p) { return part_of("Dropout", Dropout{p, false}, {input}); }

void add_dropouts(LayerRegistry& layers) {
  layers.add<Dropout>("Dropout", "zeroes elements at random while training, and scales the rest up");
  layers.add<DropoutOf<at::feature_dropout, at::feature_dropout_, 3, 3>>(
      "Dropout1d", "zeroes whole feature maps of [N, C, L] at random while training");
  layers.add<DropoutOf<at::feature_dropout, at::feature_dropout_, 3, 4>>(
      "Dropout2d", "zeroes whole feature maps of [N, C, H, W] at random while training");
  layers.add<DropoutOf<at::feature_dropout, at::feature_dropout_, 5, 5>>(
      "Dropout3d", "zeroes whole feature maps of [N, C, D, H, W] at random while training");
  layers.add<DropoutOf<at::alpha_dropout, nullptr, 1, 64, true>>(
      "AlphaDropout", "sets elements to SELU's lowest value at random while training, keeping mean and variance");
  layers.add<DropoutOf<at::feature_alpha_dropout, nullptr, 3>>(
      "FeatureAlphaDropout", "sets whole feature maps to SELU's lowest value at random while training");
  layers.add<StochasticDepth>("StochasticDepth",
                              "zeroes whole samples at random while training, and scales the rest up; before the sum "
                              "with a shortcut, so that only the shortcut remains for those samples");
}

}  // namespace trainrun
