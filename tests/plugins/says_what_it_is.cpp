// Layers and a loss that say what they are: what decodes, adapts, shares weights and reports knows them by that alone.
#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <stdexcept>

#include "registry/plugin.h"

namespace {

using trainrun::Fields;
using trainrun::Tensors;

// --- layer: y = W x + shift, which LoRA can adapt, and which can have another layer's weight ---

struct MixModule : torch::nn::Module {
  MixModule(int64_t in_features, int64_t out_features)
      : weight(register_parameter("weight", at::randn({out_features, in_features}) * 0.3)),
        shift(register_parameter("shift", at::zeros({out_features}))) {}
  at::Tensor weight;  // [out, in]
  at::Tensor shift;   // [out]
};

struct Mix {
  int64_t features = 0;
  std::optional<int64_t> given;

  static void describe(Fields<Mix>& f) {
    f.required("features", &Mix::features).at_least(1).doc("size of the output's last dimension");
    f.optional("given", &Mix::given).at_least(1).doc("size of the input's last dimension; inferred");
  }
  trainrun::Layer build(const trainrun::LayerInputs& in) const {
    const auto module = std::make_shared<MixModule>(in.infer("given", given, -1), features);
    trainrun::Layer layer(
        module,
        [module](const Tensors& inputs) -> Tensors { return {at::linear(inputs[0], module->weight, module->shift)}; },
        {.position_wise = in.is_features(-1)});
    layer.adaptable = trainrun::AdaptableWeight{.bias = "shift"};
    layer.tie = trainrun::tie_of_weight(module);
    return layer;
  }
};

// --- layer: the mean of what has come so far, [N, T, C]; it goes on where it stopped ---

struct RunningMean {
  static void describe(Fields<RunningMean>&) {}
  trainrun::Layer build(const trainrun::LayerInputs& in) const {
    in.require_dims(3, 3, "[N, T, C]");
    const auto mean = [](const at::Tensor& sums, int64_t before) {
      return sums / at::arange(before + 1, before + sums.size(1) + 1, sums.options()).unsqueeze(1);
    };
    return trainrun::decoding_layer(
        nullptr, [mean](const Tensors& inputs) -> Tensors { return {mean(inputs[0].cumsum(1), 0)}; },
        [mean](const Tensors& inputs, const trainrun::DecodingPoint& point, Tensors& memory) -> Tensors {
          at::Tensor sums = inputs[0].cumsum(1);
          if (!memory.empty()) sums = sums + memory[0].unsqueeze(1);
          memory = {sums.select(1, -1)};
          return {mean(sums, point.past)};
        });
  }
};

// --- loss: the sum of the squared differences, unless the recipe says mean ---

struct SquaredError {
  std::string over = "sum";

  static void describe(Fields<SquaredError>& f) {
    f.optional("over", &SquaredError::over).one_of({"sum", "mean"}).doc("what is made of the differences");
  }
  trainrun::LossFacts facts(const trainrun::LayerInputs&) const {
    trainrun::LossFacts facts;
    facts.target = trainrun::LossFacts::Target::kNumbers;
    facts.sums = over == "sum";
    return facts;
  }
  trainrun::Loss build(const trainrun::LayerInputs& in) const {
    in.require_inputs(2, 2);
    return {nullptr, [sums = over == "sum"](const Tensors& inputs) {
              const at::Tensor squares = (inputs[0] - inputs[1].view_as(inputs[0])).square();
              return sums ? squares.sum() : squares.mean();
            }};
  }
};

// --- fusion: a Linear and the Mix of what it gives ---

std::shared_ptr<const trainrun::Operation> fuse_linear_mix(const trainrun::FusedLayers& layers) {
  return trainrun::operation_of([linear = layers["linear"].layer.operation, mix = layers["mix"].layer.operation](
                                    const Tensors& inputs) { return mix->run(linear->run(inputs)); });
}

}  // namespace

TRAINRUN_PLUGIN(catalog) {
  // The program registers LibTorch's kernels for quantized tensors when it opens a plugin, not before.
  const at::Tensor in_tenths = at::quantize_per_tensor(at::full({1}, 0.33), 0.1, 0, at::kQInt8).dequantize();
  if (!at::allclose(in_tenths, at::full({1}, 0.3))) throw std::logic_error("quantized tensors are computed wrongly");
  catalog.fusions.add({"LinearMix",
                       "a Linear and the Mix after it",
                       {.nodes = {{"linear", {"Linear"}}, {"mix", {"Mix"}, {"linear"}}}},
                       fuse_linear_mix});
  catalog.layers.add<Mix>("Mix", "a linear map");
  catalog.layers.add<RunningMean>("RunningMean", "the mean of what has come so far");
  catalog.losses.add<SquaredError>("SquaredError", "the sum of the squared differences");
}
