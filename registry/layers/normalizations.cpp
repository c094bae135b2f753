#include <ATen/ops/layer_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/modules/batchnorm.h>

#include "registry/layer.h"

namespace trainrun {
namespace {

struct BatchNorm2d {
  double eps = 1e-5;
  std::optional<double> momentum = 0.1;
  bool affine = true;
  bool track_running_stats = true;
  std::optional<int64_t> num_features;
  static void describe(Fields<BatchNorm2d>& f) {
    f.optional("eps", &BatchNorm2d::eps).at_least(0).doc("added to the variance");
    f.optional("momentum", &BatchNorm2d::momentum)
        .at_least(0)
        .at_most(1)
        .doc("weight of the newest batch in the running statistics; null: a plain average");
    f.optional("affine", &BatchNorm2d::affine).doc("learned scale and shift of each channel");
    f.optional("track_running_stats", &BatchNorm2d::track_running_stats)
        .doc("evaluate with the statistics of training, not of the batch");
    f.optional("num_features", &BatchNorm2d::num_features).at_least(1).doc("number of channels; inferred");
  }
  Layer build(const LayerInputs& in) const {
    in.require_dims(4, 4, "[N, C, H, W]");
    torch::nn::BatchNorm2dOptions options(in.infer("num_features", num_features, 1));
    options.eps(eps).momentum(momentum).affine(affine).track_running_stats(track_running_stats);
    return layer_of(torch::nn::BatchNorm2d(options));
  }
};

/// torch.nn.LayerNorm; LibTorch's own lacks `bias`.
struct LayerNormModule : torch::nn::Module {
  LayerNormModule(std::vector<int64_t> shape, double epsilon, bool affine, bool with_bias)
      : normalized_shape(std::move(shape)), eps(epsilon) {
    if (affine) weight = register_parameter("weight", at::ones(normalized_shape));
    if (affine && with_bias) bias = register_parameter("bias", at::zeros(normalized_shape));
  }
  at::Tensor forward(const at::Tensor& input) { return at::layer_norm(input, normalized_shape, weight, bias, eps); }
  std::vector<int64_t> normalized_shape;
  double eps;
  at::Tensor weight;
  at::Tensor bias;
};

struct LayerNorm {
  std::optional<std::variant<int64_t, std::vector<int64_t>>> normalized_shape;
  double eps = 1e-5;
  bool elementwise_affine = true;
  bool bias = true;
  static void describe(Fields<LayerNorm>& f) {
    f.optional("normalized_shape", &LayerNorm::normalized_shape)
        .at_least(1)
        .doc("the trailing sizes that are normalized together; inferred: the last one");
    f.optional("eps", &LayerNorm::eps).at_least(0).doc("added to the variance");
    f.optional("elementwise_affine", &LayerNorm::elementwise_affine).doc("learned scale and shift of each element");
    f.optional("bias", &LayerNorm::bias).doc("the shift, where there is a scale");
  }
  Layer build(const LayerInputs& in) const {
    std::vector<int64_t> shape;
    if (!normalized_shape) {
      shape = {in.infer("normalized_shape", std::nullopt, -1)};
    } else if (const auto* last = std::get_if<int64_t>(&*normalized_shape)) {
      shape = {*last};
    } else {
      shape = std::get<std::vector<int64_t>>(*normalized_shape);
    }
    const at::IntArrayRef flowing = in.shape();
    if (shape.size() >= flowing.size() || flowing.slice(flowing.size() - shape.size()) != at::IntArrayRef(shape)) {
      throw LayerError("normalized_shape is " + at::str(at::IntArrayRef(shape)) + ", but " + shape_text(flowing) +
                       " flows in");
    }
    const auto module = std::make_shared<LayerNormModule>(shape, eps, elementwise_affine, bias);
    return {module, [module](const Tensors& inputs) -> Tensors { return {module->forward(inputs[0])}; }};
  }
};

}  // namespace

void add_normalizations(LayerRegistry& layers) {
  layers.add<BatchNorm2d>("BatchNorm2d", "normalizes each channel of [N, C, H, W] over the batch");
  layers.add<LayerNorm>("LayerNorm", "normalizes each sample over its trailing dimensions");
}

}  // namespace trainrun
