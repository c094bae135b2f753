#include <ATen/ops/fractional_max_pool2d.h>
#include <ATen/ops/fractional_max_pool3d.h>
#include <ATen/ops/max_unpool2d.h>
#include <ATen/ops/max_unpool3d.h>
#include <ATen/ops/rand.h>

#include <array>

#include "registry/layers/onnx_parts.h"
#include "registry/layers/sizes.h"

namespace trainrun {
namespace {

using at::Tensor;

/// torch.nn.MaxUnpool1d, MaxUnpool2d, MaxUnpool3d.
template <int kDims>
struct MaxUnpool {
  Sizes<kDims> kernel_size;
  std::optional<Sizes<kDims>> stride;
  Sizes<kDims> padding = 0;
  std::optional<Sizes<kDims>> output_size;
  static void describe(Fields<MaxUnpool>& f) {
    f.required("kernel_size", &MaxUnpool::kernel_size).at_least(1).doc("size of the pooling's window");
    f.optional("stride", &MaxUnpool::stride).at_least(1).doc("step of the window; kernel_size by default");
    f.optional("padding", &MaxUnpool::padding).at_least(0).doc("the padding that the pooling added at each border");
    f.optional("output_size", &MaxUnpool::output_size)
        .at_least(1)
        .doc("size of the output, if the pooling did not cover some points; the size of a third input also gives it");
  }
  Layer build(const LayerInputs& in) const {
    if (in.num_own() < 2 || in.num_own() > 3) {
      throw LayerError("it reads the values and the indices of a MaxPool" + std::to_string(kDims) +
                       "d with return_indices, and optionally a tensor of the size of the output, but gets " +
                       std::to_string(in.num_own()) + " inputs");
    }
    require_image<kDims>(in);
    if (in.shape(1) != in.shape(0) || in.examples[1].scalar_type() != at::kLong) {
      throw LayerError("the indices of values " + shape_text(in.shape(0)) +
                       " must be int64 and of the same shape, not " + at::toString(in.examples[1].scalar_type()) + " " +
                       shape_text(in.shape(1)));
    }
    if (in.num_own() == 3 && output_size)
      throw LayerError("either output_size or a third input says the size, not both");
    const bool like = in.num_own() == 3;
    check_size(in.shape(0), size_of(in.shape(0), like ? in.shape(2) : at::IntArrayRef(), like));
    return {nullptr, [*this, like](const Tensors& inputs) -> Tensors {
              const auto like_sizes = like ? inputs[2].sizes() : at::IntArrayRef();
              return {unpool(inputs[0], inputs[1], size_of(inputs[0].sizes(), like_sizes, like))};
            }};
  }
  /// Zeros, into which the values are written.
  void onnx(OnnxForm& form) const {
    const OnnxValue sizes = sizes_form(form);
    const OnnxValue outer = form.sizes(form.input(), 0, 2);
    const OnnxValue points = form.op("ReduceProd", {sizes}, {{"keepdims", 1}});
    const OnnxValue zeros = form.op("Expand", {form.number(0), form.op("Concat", {outer, points}, {{"axis", 0}})});
    const OnnxValue values = form.reshape(form.input(0), {0, 0, -1});
    const OnnxValue indices = form.reshape(form.input(1), {0, 0, -1});
    const OnnxValue scattered = form.op("ScatterElements", {zeros, indices, values}, {{"axis", 2}});
    form.give(form.op("Reshape", {scattered, form.op("Concat", {outer, sizes}, {{"axis", 0}})}));
  }

 private:
  Sizes<kDims> step() const { return stride.value_or(kernel_size); }
  int64_t default_size(at::IntArrayRef input, size_t i) const {
    return (input[i + 2] - 1) * step()[i] + kernel_size[i] - 2 * padding[i];
  }
  /// Of the output, without batch and channels; `like` is the third input's shape, if there is one.
  std::vector<int64_t> size_of(at::IntArrayRef input, at::IntArrayRef like, bool has_like) const {
    if (has_like) {
      if (like.size() != kDims + 2) throw LayerError("the third input must be " + std::string(kImage<kDims>));
      return like.slice(2).vec();
    }
    std::vector<int64_t> sizes;
    for (size_t i = 0; i < kDims; ++i) sizes.push_back(output_size ? (*output_size)[i] : default_size(input, i));
    return sizes;
  }
  /// Of the output, without batch and channels: [kDims].
  OnnxValue sizes_form(OnnxForm& form) const {
    if (form.num_inputs() == 3) return form.sizes(form.input(2), 2, kDims + 2);
    if (output_size) return form.ints({output_size->begin(), output_size->end()});
    std::vector<int64_t> steps;
    std::vector<int64_t> more;
    for (size_t i = 0; i < kDims; ++i) {
      steps.push_back(step()[i]);
      more.push_back(kernel_size[i] - 2 * padding[i] - step()[i]);
    }
    const OnnxValue scaled = form.op("Mul", {form.sizes(form.input(), 2, kDims + 2), form.ints(steps)});
    return form.op("Add", {scaled, form.ints(more)});
  }
  void check_size(at::IntArrayRef input, const std::vector<int64_t>& sizes) const {
    for (size_t i = 0; i < kDims; ++i) {
      const int64_t usual = default_size(input, i);
      if (sizes[i] > 0 && sizes[i] > usual - step()[i] && sizes[i] < usual + step()[i]) continue;
      throw LayerError("an output size of " + std::to_string(sizes[i]) + " in dimension " + std::to_string(i + 2) +
                       " is not between " + std::to_string(usual - step()[i]) + " and " +
                       std::to_string(usual + step()[i]));
    }
  }
  Tensor unpool(const Tensor& values, const Tensor& indices, const std::vector<int64_t>& sizes) const {
    if constexpr (kDims == 1) {
      return at::max_unpool2d(values.unsqueeze(-1), indices.unsqueeze(-1), {sizes[0], 1}).squeeze(-1);
    } else if constexpr (kDims == 2) {
      return at::max_unpool2d(values, indices, sizes);
    } else {
      return at::max_unpool3d(values, indices, sizes, step(), padding);
    }
  }
};

/// torch.nn.FractionalMaxPool2d, FractionalMaxPool3d. Source: Graham 2014, "Fractional Max-Pooling".
template <int kDims>
struct FractionalMaxPool {
  using Ratio = std::variant<double, std::vector<double>>;
  Sizes<kDims> kernel_size;
  std::optional<Sizes<kDims>> output_size;
  std::optional<Ratio> output_ratio;
  bool return_indices = false;
  static void describe(Fields<FractionalMaxPool>& f) {
    using Pool = FractionalMaxPool;
    f.required("kernel_size", &Pool::kernel_size).at_least(1).doc("size of the window");
    f.optional("output_size", &Pool::output_size).at_least(1).doc("size of the output");
    f.optional("output_ratio", &Pool::output_ratio)
        .greater_than(0)
        .less_than(1)
        .doc("size of the output as a share of the input's, or one share for each dimension");
    f.optional("return_indices", &Pool::return_indices)
        .doc("a second output: where in its feature map each value was, counted row by row");
    f.either("output_size", "output_ratio");
  }
  void check(Checker& checker) const {
    const auto* list = output_ratio ? std::get_if<std::vector<double>>(&*output_ratio) : nullptr;
    if (list && list->size() != kDims) {
      checker.fail("output_ratio", "needs " + std::to_string(kDims) + " numbers, has " + std::to_string(list->size()));
    }
  }
  Layer build(const LayerInputs& in) const {
    in.require_inputs(1, 1);
    require_image<kDims>(in);
    const std::vector<int64_t> sizes = size_of(in.shape());
    for (size_t i = 0; i < kDims; ++i) {
      if (sizes[i] >= 1 && sizes[i] + kernel_size[i] - 1 <= in.shape()[i + 2]) continue;
      throw LayerError(std::to_string(sizes[i]) + " windows of " + std::to_string(kernel_size[i]) +
                       " do not fit an input of " + std::to_string(in.shape()[i + 2]));
    }
    return {nullptr,
            [*this](const Tensors& inputs) -> Tensors {
              const Tensor& x = inputs[0];
              // Where the windows lie: drawn anew each time, in evaluation too, as in Python.
              const Tensor samples = at::rand({x.size(0), x.size(1), kDims}, x.options());
              const auto [values, indices] = pool(x, size_of(x.sizes()), samples);
              return return_indices ? Tensors{values, indices} : Tensors{values};
            },
            {.random = true}};
  }

 private:
  std::vector<int64_t> size_of(at::IntArrayRef input) const {
    if (output_size) return {output_size->begin(), output_size->end()};
    std::vector<int64_t> sizes;
    for (size_t i = 0; i < kDims; ++i) {
      const auto* one = std::get_if<double>(&*output_ratio);
      const double ratio = one ? *one : std::get<1>(*output_ratio)[i];
      sizes.push_back(static_cast<int64_t>(static_cast<double>(input[i + 2]) * ratio));
    }
    return sizes;
  }
  auto pool(const Tensor& x, const std::vector<int64_t>& sizes, const Tensor& samples) const {
    if constexpr (kDims == 2) {
      return at::fractional_max_pool2d(x, kernel_size, sizes, samples);
    } else {
      return at::fractional_max_pool3d(x, kernel_size, sizes, samples);
    }
  }
};

template <int kDims>
void add_unpooling_of(LayerRegistry& layers) {
  const std::string dims = std::to_string(kDims) + "d";
  layers.add<MaxUnpool<kDims>>("MaxUnpool" + dims, std::string("puts the values of MaxPool") + dims +
                                                       " back where they were, with zeros around them, " +
                                                       kImage<kDims> +
                                                       "; inputs: the values, the indices, and a tensor "
                                                       "of the size of the output");
}

}  // namespace

void add_unpoolings(LayerRegistry& layers) {
  add_unpooling_of<1>(layers);
  add_unpooling_of<2>(layers);
  add_unpooling_of<3>(layers);
  layers.add<FractionalMaxPool<2>>("FractionalMaxPool2d",
                                   "the largest value in windows [N, C, H, W] whose places are drawn each time");
  layers.add<FractionalMaxPool<3>>("FractionalMaxPool3d",
                                   "the largest value in windows [N, C, D, H, W] whose places are drawn each time");
}

}  // namespace trainrun
