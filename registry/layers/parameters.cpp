#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/module.h>

#include "registry/kinds/layer.h"
#include "registry/layers/onnx_parts.h"

namespace trainrun {
namespace {

struct FreeParameter : torch::nn::Module {
  explicit FreeParameter(at::Tensor initial) : value(register_parameter("weight", std::move(initial))) {}
  at::Tensor value;
};

/// The layer that keeps `module` and computes `function`.
Layer parameter_layer(std::shared_ptr<FreeParameter> module, Layer::Function function,
                      const Operation::Traits& traits = {}) {
  Layer layer(std::move(module), std::move(function), traits);
  layer.is_parameter = true;
  return layer;
}

/// torch.nn.Parameter as a layer: a class token, a LayerScale, a temperature.
struct LearnedTensor {
  std::vector<int64_t> shape;
  std::optional<bool> expand;
  static void describe(Fields<LearnedTensor>& f) {
    f.required("shape", &LearnedTensor::shape)
        .at_least(0)
        .doc(
            "shape of the tensor itself, as in torch: [1, 1, 64] for a class token, [64] for a LayerScale, [] for one "
            "number");
    f.optional("expand", &LearnedTensor::expand)
        .doc(
            "repeat the first dimension, of size 1, for each sample of the batch; null: do so if the tensor has as "
            "many dimensions as the input");
  }
  Layer build(const LayerInputs& in) const {
    in.require_inputs(1, 1);
    const bool one_first = !shape.empty() && shape[0] == 1;
    if (expand.value_or(false) && !one_first) {
      throw LayerError("expand repeats a first dimension of 1, but shape is " + at::str(at::IntArrayRef(shape)));
    }
    const bool repeat = repeats(static_cast<int64_t>(in.shape().size()));
    const auto module = std::make_shared<FreeParameter>(at::zeros(shape));
    return parameter_layer(module,
                           [module, repeat](const Tensors& inputs) -> Tensors {
                             if (!repeat) return {module->value};
                             std::vector<int64_t> sizes = module->value.sizes().vec();
                             sizes[0] = inputs[0].size(0);
                             return {module->value.expand(sizes)};
                           },
                           {.view = true});
  }
  void onnx(OnnxForm& form) const {
    if (!repeats(form.rank())) return form.give(form.state("weight"));
    OnnxValues sizes = {form.sizes(form.input(), 0, 1)};
    if (shape.size() > 1) sizes.push_back(form.ints(std::vector<int64_t>(shape.size() - 1, 1)));
    form.give(form.op("Expand", {form.state("weight"), form.op("Concat", sizes, {{"axis", 0}})}));
  }

 private:
  /// Whether the first dimension is repeated for each sample of an input of so many dimensions.
  bool repeats(int64_t rank) const {
    const bool one_first = !shape.empty() && shape[0] == 1;
    return expand.value_or(one_first && static_cast<int64_t>(shape.size()) == rank);
  }
};

/// Source: Touvron et al. 2021, "Going deeper with Image Transformers".
struct LayerScale {
  double init_value = 1e-6;
  int64_t dim = 1;
  static void describe(Fields<LayerScale>& f) {
    f.optional("init_value", &LayerScale::init_value)
        .doc("initial value of the factors; small, so that a block has little effect at first");
    f.optional("dim", &LayerScale::dim).doc("the dimension of the channels: 1 for images, -1 for sequences [N, T, C]");
  }
  Layer build(const LayerInputs& in) const {
    in.require_inputs(1, 1);
    const int64_t channels = in.infer("dim", std::nullopt, dim);
    const auto rank = static_cast<int64_t>(in.shape().size());
    std::vector<int64_t> sizes(static_cast<size_t>(dim < 0 ? -dim : rank - dim), 1);
    sizes[0] = channels;
    const auto module = std::make_shared<FreeParameter>(at::full(sizes, init_value));
    return parameter_layer(
        module, [module](const Tensors& inputs) -> Tensors { return {module->value * inputs[0]}; },
        in.traits_along(dim));
  }
  void onnx(OnnxForm& form) const { form.give(form.op("Mul", {form.state("weight"), form.input()})); }
};

}  // namespace

void add_parameters(LayerRegistry& layers) {
  layers.add<LearnedTensor>("Parameter",
                            "a learned tensor that does not depend on the input; initially zeros, or as init says; its "
                            "state name is the layer's name");
  layers.add<LayerScale>("LayerScale",
                         "its input times a learned factor for each channel; its state name is the layer's name");
}

}  // namespace trainrun
