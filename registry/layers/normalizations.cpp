#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/avg_pool3d.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/group_norm.h>
#include <ATen/ops/instance_norm.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/module.h>

#include <limits>

#include "registry/graph/positions.h"
#include "registry/kernels/batch_norm.h"
#include "registry/kinds/running_statistics.h"
#include "registry/layers/batch_norm.h"
#include "registry/layers/onnx_parts.h"
#include "registry/layers/parts.h"
#include "registry/layers/sizes.h"
#include "registry/layers/sync_batch_norm.h"

namespace trainrun {
namespace {

/// Throws unless `sizes` [N, C, …] has more than one number for each channel, or for each channel of each sample.
void require_several(at::IntArrayRef sizes, bool of_each_sample) {
  int64_t number = of_each_sample ? 1 : sizes[0];
  for (const int64_t size : sizes.slice(2)) number *= size;
  if (number != 1) return;
  throw LayerError(std::string("it normalizes over more than one value per channel") +
                   (of_each_sample ? " of a sample, but " : " while training, but ") + shape_text(sizes) + " has one");
}

/// Throws unless a group of `num_groups` holds more than one number, or the batch more than one sample, as torch.nn's
/// GroupNorm asks. (It asks in evaluation, too, where a last batch of one sample would end a run that is right.)
void require_several_in_groups(at::IntArrayRef sizes, int64_t num_groups) {
  int64_t number = sizes[0] * sizes[1] / num_groups;
  for (const int64_t size : sizes.slice(2)) number *= size;
  if (number != 1) return;
  throw LayerError("it normalizes over more than one value per group while training, but " + shape_text(sizes) +
                   " in " + std::to_string(num_groups) + " groups has one");
}

/// A learned scale and shift; either may be missing.
struct ScaleModule : torch::nn::Module {
  ScaleModule(at::IntArrayRef sizes, bool scale, bool shift) {
    if (scale) weight = register_parameter("weight", at::ones(sizes));
    if (shift) bias = register_parameter("bias", at::zeros(sizes));
  }
  at::Tensor weight;
  at::Tensor bias;
};

/// What torch.nn's _NormBase keeps. LibTorch's InstanceNorm has no momentum of null.
struct RunningNormModule : ScaleModule {
  RunningNormModule(int64_t channels, bool affine, bool track) : ScaleModule(channels, affine, affine) {
    if (!track) return;
    running_mean = register_buffer("running_mean", at::zeros(channels));
    running_var = register_buffer("running_var", at::ones(channels));
    num_batches_tracked = register_buffer("num_batches_tracked", at::zeros({}, at::kLong));
  }
  at::Tensor running_mean;
  at::Tensor running_var;
  at::Tensor num_batches_tracked;
};

bool use_cudnn() { return at::globalContext().userEnabledCuDNN(); }

/// What torch.nn.BatchNorm and SyncBatchNorm keep.
struct BatchNormModule : RunningNormModule, SpansRanks, RunningStatistics, NormByRows {
  BatchNormModule(int64_t channels, bool affine, bool track, bool sync, std::optional<double> newest, double epsilon)
      : RunningNormModule(channels, affine, track), always_sync(sync), momentum_(newest), eps_(epsilon) {}
  void span(Communicator& others, bool sync_batchnorm) override {
    if (always_sync || sync_batchnorm) ranks = &others;
  }
  void begin_anew() override {
    if (!running_mean.defined()) return;
    running_mean.zero_();
    running_var.fill_(1);
    num_batches_tracked.zero_();
    each_batch_alike = true;
  }
  void end_anew() override { each_batch_alike = false; }
  std::vector<at::Tensor> statistics() const override {
    if (!running_mean.defined()) return {};
    return {running_mean, running_var, num_batches_tracked};
  }
  bool spans_all_ranks() const override { return ranks != nullptr; }

  /// As torch.nn._BatchNorm.forward.
  at::Tensor normalized(const at::Tensor& input) {
    const double newest = count_batch(input);
    if (ranks && is_training()) {
      return sync_batch_norm(input, {weight, bias, running_mean, running_var}, newest, eps_, *ranks);
    }
    return at::batch_norm(input, weight, bias, running_mean, running_var, uses_batch(), newest, eps_, use_cudnn());
  }
  at::Tensor by_rows(const at::Tensor& input) override {
    return is_own(input) ? kernels::batch_norm(input, terms(count_batch(input))) : normalized(input);
  }
  at::Tensor then_relu(const at::Tensor& input, const at::Tensor& added) override {
    if (is_own(input)) return kernels::batch_norm_relu(input, added, terms(count_batch(input)));
    const at::Tensor result = normalized(input);
    return at::relu(added.defined() ? result + added : result);
  }

  bool each_batch_alike = false;  // as a momentum of null
  bool always_sync;
  Communicator* ranks = nullptr;  // null: each rank normalizes over its own batch

 private:
  /// On a GPU cuDNN computes it.
  bool is_own(const at::Tensor& input) const { return input.is_cpu() && !(ranks && is_training()); }
  bool uses_batch() const { return is_training() || !running_mean.defined(); }
  kernels::BatchNorm terms(double newest) const {
    return {weight, bias, running_mean, running_var, uses_batch(), newest, eps_};
  }
  /// Counts a batch of training; returns its weight in the running statistics.
  double count_batch(const at::Tensor& input) {
    const bool training = is_training();
    if (training && !ranks) require_several(input.sizes(), false);
    if (!training || !running_mean.defined()) return momentum_.value_or(0);
    num_batches_tracked.add_(1);
    return momentum_ && !each_batch_alike ? *momentum_ : 1 / num_batches_tracked.item<double>();
  }

  std::optional<double> momentum_;
  double eps_;
};

/// As torch.nn._InstanceNorm.forward, where batches are not counted.
at::Tensor instance_norm(RunningNormModule& norm, const at::Tensor& input, std::optional<double> momentum, double eps) {
  const bool own_statistics = norm.is_training() || !norm.running_mean.defined();
  if (own_statistics) require_several(input.sizes(), true);
  return at::instance_norm(input, norm.weight, norm.bias, norm.running_mean, norm.running_var, own_statistics,
                           momentum.value_or(0), eps, use_cudnn());
}

/// Whose values a channel is normalized over.
enum class Over { kBatch, kRanks, kSample };

/// torch.nn.BatchNorm1d, …, InstanceNorm3d; SyncBatchNorm for any number of dimensions, which is written 0.
template <int kDims, Over kOver>
struct RunningNorm {
  static constexpr bool kOfBatch = kOver != Over::kSample;

  double eps = 1e-5;
  std::optional<double> momentum = 0.1;
  bool affine = kOfBatch;
  bool track_running_stats = kOfBatch;
  std::optional<int64_t> num_features;
  static void describe(Fields<RunningNorm>& f) {
    f.optional("eps", &RunningNorm::eps).at_least(0).doc("added to the variance");
    f.optional("momentum", &RunningNorm::momentum)
        .at_least(0)
        .at_most(1)
        .doc(std::string("weight of the newest batch in the running statistics; null: ") +
             (kOfBatch ? "a plain average" : "0, as in PyTorch"));
    f.optional("affine", &RunningNorm::affine).doc("learned scale and shift of each channel");
    f.optional("track_running_stats", &RunningNorm::track_running_stats)
        .doc("evaluate with the statistics of training, not of " + std::string(kOfBatch ? "the batch" : "the sample"));
    f.optional("num_features", &RunningNorm::num_features).at_least(1).doc("number of channels; inferred");
  }
  Layer build(const LayerInputs& in) const {
    if constexpr (kDims == 0) {
      in.require_dims(2, 5, "[N, C, …]");
    } else if constexpr (kOfBatch && kDims == 1) {
      in.require_dims(2, 3, "[N, C] or [N, C, L]");
    } else {
      require_image<kDims>(in);
    }
    const int64_t channels = in.infer("num_features", num_features, 1);
    if constexpr (kOfBatch) {
      const auto module = std::make_shared<BatchNormModule>(channels, affine, track_running_stats,
                                                            kOver == Over::kRanks, momentum, eps);
      return {module,
              [module](const Tensors& inputs) -> Tensors { return {module->normalized(inputs[0])}; },
              {.spans_ranks = true, .capturable = kOver == Over::kBatch, .half_precision = kOver == Over::kBatch}};
    } else {
      const auto module = std::make_shared<RunningNormModule>(channels, affine, track_running_stats);
      return {module,
              [module, *this](const Tensors& inputs) -> Tensors {
                return {instance_norm(*module, inputs[0], momentum, eps)};
              },
              kComputed};
    }
  }
  void onnx(OnnxForm& form) const {
    if (track_running_stats) {
      const at::IntArrayRef channels = form.state_tensor("running_mean").sizes();
      return form.give(
          form.op("BatchNormalization",
                  {form.input(), onnx_scale(form, "weight", channels, 1), onnx_scale(form, "bias", channels, 0),
                   form.state("running_mean"), form.state("running_var")},
                  {{"epsilon", eps}}));
    }
    std::vector<int64_t> dims;
    if (kOfBatch) dims.push_back(0);
    for (int64_t dim = 2; dim < form.rank(); ++dim) dims.push_back(dim);
    form.give(onnx_channels_scaled(form, onnx_normalized(form, form.input(), dims, eps)));
  }
};

struct GroupNorm {
  int64_t num_groups = 0;
  double eps = 1e-5;
  bool affine = true;
  std::optional<int64_t> num_channels;
  static void describe(Fields<GroupNorm>& f) {
    f.required("num_groups", &GroupNorm::num_groups).at_least(1).doc("groups of channels, each normalized on its own");
    f.optional("eps", &GroupNorm::eps).at_least(0).doc("added to the variance");
    f.optional("affine", &GroupNorm::affine).doc("learned scale and shift of each channel");
    f.optional("num_channels", &GroupNorm::num_channels).at_least(1).doc("number of channels; inferred");
  }
  Layer build(const LayerInputs& in) const {
    const int64_t channels = in.infer("num_channels", num_channels, 1);
    if (channels % num_groups != 0) {
      throw LayerError("num_groups is " + std::to_string(num_groups) + ", which does not divide the " +
                       std::to_string(channels) + " channels of the input");
    }
    const auto module = std::make_shared<ScaleModule>(channels, affine, affine);
    return {module,
            [module, *this](const Tensors& inputs) -> Tensors {
              if (module->is_training()) require_several_in_groups(inputs[0].sizes(), num_groups);
              return {at::group_norm(inputs[0], num_groups, module->weight, module->bias, eps, use_cudnn())};
            },
            kComputed};
  }
  void onnx(OnnxForm& form) const {
    const OnnxValue groups = form.reshape(form.input(), {0, num_groups, -1});
    const OnnxValue normed = onnx_normalized(form, groups, {2}, eps);
    form.give(onnx_channels_scaled(form, form.op("Reshape", {normed, form.sizes(form.input(), 0, form.rank())})));
  }
};

/// The trailing sizes that are normalized together; the last one where the recipe says nothing.
using TrailingShape = std::optional<std::variant<int64_t, std::vector<int64_t>>>;

std::vector<int64_t> trailing_shape(const LayerInputs& in, const TrailingShape& normalized_shape) {
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
    throw LayerError("normalized_shape is " + at::str(at::IntArrayRef(shape)) + ", but the input is " +
                     shape_text(flowing));
  }
  return shape;
}

/// Of a normalization over these trailing sizes.
Operation::Traits traits_over(const LayerInputs& in, const std::vector<int64_t>& shape) {
  return shape.size() == 1 ? in.traits_along(-1) : kComputed;
}

/// How many trailing dimensions that are.
int64_t num_trailing(const TrailingShape& normalized_shape) {
  const auto* shape = normalized_shape ? std::get_if<std::vector<int64_t>>(&*normalized_shape) : nullptr;
  return shape ? static_cast<int64_t>(shape->size()) : 1;
}

/// torch.nn.LayerNorm; LibTorch's own lacks `bias`.
struct LayerNorm {
  TrailingShape normalized_shape;
  double eps = 1e-5;
  bool elementwise_affine = true;
  bool bias = true;
  static void describe(Fields<LayerNorm>& f) {
    f.optional("normalized_shape", &LayerNorm::normalized_shape)
        .at_least(1)
        .doc("the trailing sizes that are normalized together; inferred: the last one");
    f.optional("eps", &LayerNorm::eps).at_least(0).doc("added to the variance");
    f.optional("elementwise_affine", &LayerNorm::elementwise_affine).doc("learned scale and shift of each element");
    f.optional("bias", &LayerNorm::bias).doc("learn a shift, if there is a scale");
  }
  Layer build(const LayerInputs& in) const {
    const std::vector<int64_t> shape = trailing_shape(in, normalized_shape);
    const auto module = std::make_shared<ScaleModule>(shape, elementwise_affine, elementwise_affine && bias);
    Layer layer;
    layer.state = module;
    layer.operation = std::make_shared<InOrderOperation>(
        [module, shape, epsilon = eps](const Tensors& inputs) -> Tensors {
          return {at::layer_norm(inputs[0], shape, module->weight, module->bias, epsilon)};
        },
        traits_over(in, shape));
    return layer;
  }
  void onnx(OnnxForm& form) const {
    const int64_t count = num_trailing(normalized_shape);
    std::vector<int64_t> sizes;
    for (int64_t dim = -count; dim < 0 && !elementwise_affine; ++dim) sizes.push_back(form.fixed_size(dim));
    OnnxValues inputs = {form.input(), onnx_scale(form, "weight", sizes, 1)};
    if (form.has("bias")) inputs.push_back(form.state("bias"));
    form.give(form.op("LayerNormalization", inputs, {{"axis", -count}, {"epsilon", eps}}));
  }
};

/// torchvision's LayerNorm2d.
struct LayerNorm2d {
  double eps = 1e-5;
  std::optional<int64_t> num_channels;
  static void describe(Fields<LayerNorm2d>& f) {
    f.optional("eps", &LayerNorm2d::eps).at_least(0).doc("added to the variance");
    f.optional("num_channels", &LayerNorm2d::num_channels).at_least(1).doc("number of channels; inferred");
  }
  Layer build(const LayerInputs& in) const {
    require_image<2>(in);
    const int64_t channels = in.infer("num_channels", num_channels, 1);
    const auto module = std::make_shared<ScaleModule>(channels, true, true);
    return {module,
            [module, channels, epsilon = eps](const Tensors& inputs) -> Tensors {
              const at::Tensor last = inputs[0].permute({0, 2, 3, 1});
              return {at::layer_norm(last, channels, module->weight, module->bias, epsilon).permute({0, 3, 1, 2})};
            },
            kComputed};
  }
  void onnx(OnnxForm& form) const {
    const OnnxValue last = form.transpose(form.input(), {0, 2, 3, 1});
    const OnnxValue normed = form.op("LayerNormalization", {last, form.state("weight"), form.state("bias")},
                                     {{"axis", -1}, {"epsilon", eps}});
    form.give(form.transpose(normed, {0, 3, 1, 2}));
  }
};

/// torch.nn.RMSNorm. Source: Zhang and Sennrich 2019, "Root Mean Square Layer Normalization".
struct RMSNorm {
  TrailingShape normalized_shape;
  std::optional<double> eps;
  bool elementwise_affine = true;
  static void describe(Fields<RMSNorm>& f) {
    f.optional("normalized_shape", &RMSNorm::normalized_shape)
        .at_least(1)
        .doc("the trailing sizes that are normalized together; inferred: the last one");
    f.optional("eps", &RMSNorm::eps).at_least(0).doc("added to the mean square; null: the smallest step of the dtype");
    f.optional("elementwise_affine", &RMSNorm::elementwise_affine).doc("learned scale of each element");
  }
  Layer build(const LayerInputs& in) const {
    const std::vector<int64_t> shape = trailing_shape(in, normalized_shape);
    const auto module = std::make_shared<ScaleModule>(shape, elementwise_affine, false);
    return {module,
            [module, shape, epsilon = eps](const Tensors& inputs) -> Tensors {
              std::optional<at::Tensor> weight;
              if (module->weight.defined()) weight = module->weight;
              return {at::rms_norm(inputs[0], shape, weight, epsilon)};
            },
            traits_over(in, shape)};
  }
  void onnx(OnnxForm& form) const {
    const OnnxValue& x = form.input();
    std::vector<int64_t> dims;
    for (int64_t dim = -num_trailing(normalized_shape); dim < 0; ++dim) dims.push_back(dim);
    const OnnxValue squares = onnx_reduce(form, "ReduceMean", form.op("Mul", {x, x}), dims, true);
    const double least = eps.value_or(std::numeric_limits<float>::epsilon());
    OnnxValue result = form.op("Div", {x, form.op("Sqrt", {onnx_with(form, "Add", squares, least)})});
    if (elementwise_affine) result = form.op("Mul", {result, form.state("weight")});
    form.give(result);
  }
};

/// torch.nn.LocalResponseNorm. Source: Krizhevsky et al. 2012, "ImageNet Classification with Deep Convolutional Neural
/// Networks".
struct LocalResponseNorm {
  int64_t size = 0;
  double alpha = 1e-4;
  double beta = 0.75;
  double k = 1;
  static void describe(Fields<LocalResponseNorm>& f) {
    f.required("size", &LocalResponseNorm::size).at_least(1).doc("neighbouring channels in each sum");
    f.optional("alpha", &LocalResponseNorm::alpha).doc("weight of the mean square over those channels");
    f.optional("beta", &LocalResponseNorm::beta).doc("exponent");
    f.optional("k", &LocalResponseNorm::k).doc("added to that mean square");
  }
  Layer build(const LayerInputs& in) const {
    in.require_dims(3, 64, "[N, C, L] or more dimensions");
    return layer_of_function(
        [*this](const at::Tensor& input) {
          const at::IntArrayRef sizes = input.sizes();
          const at::Tensor squares = input * input;
          const int64_t before = size / 2;
          const int64_t after = (size - 1) / 2;
          at::Tensor mean;  // over the neighbouring channels
          if (input.dim() == 3) {
            mean = at::constant_pad_nd(squares.unsqueeze(1), {0, 0, before, after});
            mean = at::avg_pool2d(mean, {size, 1}, 1).squeeze(1);
          } else {
            mean = at::constant_pad_nd(squares.reshape({sizes[0], 1, sizes[1], sizes[2], -1}),
                                       {0, 0, 0, 0, before, after});
            mean = at::avg_pool3d(mean, {size, 1, 1}, 1).reshape(sizes);
          }
          return input / (mean * alpha + k).pow(beta);
        },
        {.capturable = true});
  }
  void onnx(OnnxForm& form) const {
    const OnnxValue& x = form.input();
    const OnnxValue squares = form.reshape(form.op("Mul", {x, x}), {0, 1, form.fixed_size(1), -1});
    const std::vector<int64_t> pads = {size / 2, 0, (size - 1) / 2, 0};
    const OnnxValue mean =
        form.op("AveragePool", {onnx_padded(form, squares, pads, "constant", 0)},
                {{"kernel_shape", std::vector<int64_t>{size, 1}}, {"strides", std::vector<int64_t>{1, 1}}});
    const OnnxValue grown = onnx_with(form, "Add", onnx_with(form, "Mul", mean, alpha), k);
    const OnnxValue divisor = onnx_with(form, "Pow", grown, beta);
    form.give(form.op("Div", {x, form.op("Reshape", {divisor, form.sizes(x, 0, form.rank())})}));
  }
};

template <int kDims>
void add_running_norms(LayerRegistry& layers) {
  const std::string dims = std::to_string(kDims) + "d";
  const std::string image = kDims == 1 ? "[N, C] or [N, C, L]" : kImage<kDims>;
  layers.add<RunningNorm<kDims, Over::kBatch>>("BatchNorm" + dims,
                                               "normalizes each channel of " + image + " over the batch");
  layers.add<RunningNorm<kDims, Over::kSample>>(
      "InstanceNorm" + dims, std::string("normalizes each channel of each sample of ") + kImage<kDims>);
}

}  // namespace

Part layer_norm_part(const at::Tensor& input, double eps, bool bias) {
  LayerNorm norm;
  norm.eps = eps;
  norm.bias = bias;
  return part_of("LayerNorm", norm, {input});
}

void add_normalizations(LayerRegistry& layers) {
  add_running_norms<1>(layers);
  add_running_norms<2>(layers);
  add_running_norms<3>(layers);
  layers.add<RunningNorm<0, Over::kRanks>>(
      "SyncBatchNorm", "normalizes each channel of [N, C, …] over the batches of all ranks while training");
  layers.add<GroupNorm>("GroupNorm", "normalizes groups of channels of each sample of [N, C, …]");
  layers.add<LayerNorm>("LayerNorm", "normalizes each sample over its trailing dimensions");
  layers.add<LayerNorm2d>("LayerNorm2d", "normalizes the channels at each point of [N, C, H, W]");
  layers.add<RMSNorm>("RMSNorm", "divides by the root of the mean square over the trailing dimensions");
  layers.add<LocalResponseNorm>("LocalResponseNorm", "normalizes [N, C, L, …] across neighbouring channels");
}

}  // namespace trainrun
