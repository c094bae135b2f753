#include "registry/layers/poolings.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/adaptive_max_pool1d.h>
#include <ATen/ops/adaptive_max_pool2d.h>
#include <ATen/ops/adaptive_max_pool3d.h>
#include <ATen/ops/avg_pool1d.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/avg_pool3d.h>
#include <ATen/ops/max_pool1d.h>
#include <ATen/ops/max_pool1d_with_indices.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/max_pool3d.h>
#include <ATen/ops/max_pool3d_with_indices.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sign.h>

#include "registry/kernels/max_pool.h"
#include "registry/layers/adaptive_avg_pool.h"
#include "registry/layers/onnx_parts.h"
#include "registry/layers/sizes.h"

namespace trainrun {
namespace {

TRAINRUN_OP_OF_DIMS(max_pool, )
TRAINRUN_OP_OF_DIMS(max_pool, _with_indices)
TRAINRUN_OP_OF_DIMS(avg_pool, )
TRAINRUN_OP_OF_DIMS(adaptive_max_pool, )

template <int kDims, class Pool>
void describe_window(Fields<Pool>& f) {
  using Window = PoolWindow<kDims>;
  f.required("kernel_size", &Window::kernel_size).at_least(1).doc("size of the window");
  f.optional("stride", &Window::stride).at_least(1).doc("step of the window; kernel_size by default");
}

template <int kDims, class Pool>
void describe_ceil_mode(Fields<Pool>& f) {
  f.optional("ceil_mode", &PoolWindow<kDims>::ceil_mode).doc("round the output's size up");
}

template <int kDims>
void check_padding(const Sizes<kDims>& padding, const Sizes<kDims>& kernel_size, Checker& checker) {
  for (size_t i = 0; i < kDims; ++i) {
    if (2 * padding[i] > kernel_size[i]) return checker.fail("padding", "may be at most half of kernel_size");
  }
}

/// What ONNX's poolings have in common.
template <int kDims>
OnnxAttributes window_attributes(const PoolWindow<kDims>& window, const Sizes<kDims>& padding) {
  const Sizes<kDims> step = window.step();
  std::vector<int64_t> pads(padding.begin(), padding.end());  // before each dimension, then after each
  pads.insert(pads.end(), padding.begin(), padding.end());
  return {{"kernel_shape", std::vector<int64_t>(window.kernel_size.begin(), window.kernel_size.end())},
          {"strides", std::vector<int64_t>(step.begin(), step.end())},
          {"pads", pads},
          {"ceil_mode", window.ceil_mode ? 1 : 0}};
}

/// The values of ONNX's MaxPool, and its indices in a feature map of `x`: ONNX counts through all of them.
OnnxValues max_pool_form(OnnxForm& form, const OnnxValue& x, const OnnxAttributes& attributes, bool return_indices) {
  if (!return_indices) return {form.op("MaxPool", {x}, attributes)};
  const OnnxValues both = form.ops("MaxPool", {x}, 2, attributes);
  const OnnxValue points = form.op("ReduceProd", {form.sizes(x, 2, form.rank())}, {{"keepdims", 0}});
  return {both[0], form.op("Mod", {both[1], points})};
}

}  // namespace

kernels::MaxPoolWindow window_of(const MaxPool<2>& pool) {
  return {pool.kernel_size, pool.step(), pool.padding, pool.dilation, pool.ceil_mode};
}

template <int kDims>
void MaxPool<kDims>::describe(Fields<MaxPool>& f) {
  describe_window<kDims>(f);
  f.optional("padding", &MaxPool::padding).at_least(0).doc("points of -inf added at each border");
  f.optional("dilation", &MaxPool::dilation).at_least(1).doc("distance between the window's points");
  f.optional("return_indices", &MaxPool::return_indices)
      .doc("a second output: where in its feature map each value was, counted row by row");
  describe_ceil_mode<kDims>(f);
}

template <int kDims>
void MaxPool<kDims>::check(Checker& checker) const {
  check_padding<kDims>(padding, this->kernel_size, checker);
}

template <int kDims>
Layer MaxPool<kDims>::build(const LayerInputs& in) const {
  require_image<kDims>(in);
  require_window<kDims>(in, this->kernel_size, this->step(), padding, dilation, this->ceil_mode);
  return {nullptr,
          [*this](const Tensors& inputs) -> Tensors {
            if constexpr (kDims == 2) {
              if (!return_indices) return {kernels::max_pool2d(inputs[0], window_of(*this))};
            }
            if (!return_indices) {
              return {max_pool<kDims>(inputs[0], this->kernel_size, this->step(), padding, dilation, this->ceil_mode)};
            }
            const auto [values, indices] = max_pool_with_indices<kDims>(inputs[0], this->kernel_size, this->step(),
                                                                        padding, dilation, this->ceil_mode);
            return {values, indices};
          },
          kComputed};
}

template <int kDims>
void MaxPool<kDims>::onnx(OnnxForm& form) const {
  OnnxAttributes attributes = window_attributes<kDims>(*this, padding);
  attributes.emplace_back("dilations", std::vector<int64_t>(dilation.begin(), dilation.end()));
  for (const OnnxValue& value : max_pool_form(form, form.input(), attributes, return_indices)) form.give(value);
}

namespace {

/// torch.nn.AvgPool1d, AvgPool2d, AvgPool3d.
template <int kDims>
struct AvgPool : PoolWindow<kDims> {
  Sizes<kDims> padding = 0;
  bool count_include_pad = true;
  std::optional<int64_t> divisor_override;  // not in one dimension
  static void describe(Fields<AvgPool>& f) {
    describe_window<kDims>(f);
    f.optional("padding", &AvgPool::padding).at_least(0).doc("zeros added at each border");
    describe_ceil_mode<kDims>(f);
    f.optional("count_include_pad", &AvgPool::count_include_pad).doc("the added zeros count in the mean");
    if constexpr (kDims > 1) {
      f.optional("divisor_override", &AvgPool::divisor_override)
          .at_least(1)
          .doc("divide by this, not by the number of points");
    }
  }
  void check(Checker& checker) const { check_padding<kDims>(padding, this->kernel_size, checker); }
  Layer build(const LayerInputs& in) const {
    require_image<kDims>(in);
    require_window<kDims>(in, this->kernel_size, this->step(), padding, 1, this->ceil_mode);
    return layer_of_function(
        [*this](const at::Tensor& input) {
          const auto pool = [&](const auto&... rest) {
            return avg_pool<kDims>(input, this->kernel_size, this->step(), padding, this->ceil_mode, count_include_pad,
                                   rest...);
          };
          if constexpr (kDims == 1) {
            return pool();
          } else {
            return pool(divisor_override);
          }
        },
        {.capturable = true, .half_precision = kDims < 3});
  }
  void onnx(OnnxForm& form) const {
    if (divisor_override && this->ceil_mode) form.refuse("divisor_override with ceil_mode is not in its AveragePool");
    OnnxAttributes attributes = window_attributes<kDims>(*this, padding);
    attributes.emplace_back("count_include_pad", count_include_pad || divisor_override ? 1 : 0);
    const OnnxValue mean = form.op("AveragePool", {form.input()}, attributes);
    if (!divisor_override) return form.give(mean);
    double points = 1;
    for (const int64_t size : this->kernel_size) points *= static_cast<double>(size);
    form.give(onnx_with(form, "Mul", mean, points / static_cast<double>(*divisor_override)));
  }
};

/// torch.nn.LPPool1d, LPPool2d, LPPool3d: (Σ x^p)^(1/p) over each window.
template <int kDims>
struct LPPool : PoolWindow<kDims> {
  double norm_type = 2;
  static void describe(Fields<LPPool>& f) {
    f.required("norm_type", &LPPool::norm_type).greater_than(0).doc("the p of (sum of x^p)^(1/p)");
    describe_window<kDims>(f);
    describe_ceil_mode<kDims>(f);
  }
  Layer build(const LayerInputs& in) const {
    require_image<kDims>(in);
    require_window<kDims>(in, this->kernel_size, this->step(), 0, 1, this->ceil_mode);
    return layer_of_function(
        [*this](const at::Tensor& input) {
          const Sizes<kDims> no_padding = 0;
          const at::Tensor mean =
              avg_pool<kDims>(input.pow(norm_type), this->kernel_size, this->step(), no_padding, this->ceil_mode);
          int64_t points = 1;
          for (const int64_t size : this->kernel_size) points *= size;
          // sign(m)·relu(|m|) is m, but its gradient where m = 0 is 0
          return (at::sign(mean) * at::relu(at::abs(mean))).mul(points).pow(1 / norm_type);
        },
        {.capturable = true, .half_precision = kDims < 3});
  }
  void onnx(OnnxForm& form) const {
    const OnnxValue powers = onnx_with(form, "Pow", form.input(), norm_type);
    const OnnxValue mean = form.op("AveragePool", {powers}, window_attributes<kDims>(*this, Sizes<kDims>(0)));
    double points = 1;
    for (const int64_t size : this->kernel_size) points *= static_cast<double>(size);
    form.give(onnx_with(form, "Pow", onnx_with(form, "Mul", mean, points), 1 / norm_type));
  }
};

/// A size, or one for each dimension, where null keeps what flows in.
template <int kDims>
using OutputSize = std::variant<int64_t, std::array<std::optional<int64_t>, kDims>>;

/// torch.nn.AdaptiveAvgPool1d, …, AdaptiveMaxPool3d.
template <int kDims, bool kMax>
struct AdaptivePool {
  OutputSize<kDims> output_size = int64_t{1};
  bool return_indices = false;  // of the maxima
  static void describe(Fields<AdaptivePool>& f) {
    f.required("output_size", &AdaptivePool::output_size)
        .at_least(1)
        .doc("size of the output; null keeps that of the input");
    if constexpr (kMax) {
      f.optional("return_indices", &AdaptivePool::return_indices)
          .doc("a second output: where in its feature map each value was, counted row by row");
    }
  }
  Layer build(const LayerInputs& in) const {
    require_image<kDims>(in);
    return {nullptr,
            [*this](const Tensors& inputs) -> Tensors {
              const std::vector<int64_t> sizes = output_sizes(inputs[0]);
              if constexpr (kMax) {
                const auto [values, indices] = adaptive_max_pool<kDims>(inputs[0], sizes);
                return return_indices ? Tensors{values, indices} : Tensors{values};
              } else {
                return {adaptive_avg_pool<kDims>(inputs[0], sizes)};
              }
            },
            kComputed};
  }
  void onnx(OnnxForm& form) const {
    std::vector<int64_t> sizes(kDims, 0);  // 0 keeps what flows in
    for (size_t i = 0; i < kDims; ++i) {
      const auto* all = std::get_if<int64_t>(&output_size);
      sizes[i] = all ? *all : std::get<1>(output_size)[i].value_or(0);
    }
    if constexpr (kMax) {
      if (return_indices) return give_with_indices(form, sizes);
      form.give(maxima_form(form, sizes));
    } else {
      form.give(onnx_adaptive_mean(form, sizes));
    }
  }

 private:
  /// The largest values over the windows of one dimension after the other.
  static OnnxValue maxima_form(OnnxForm& form, const std::vector<int64_t>& sizes) {
    OnnxValue x = form.input();
    for (size_t i = 0; i < kDims; ++i) {
      const auto dim = static_cast<int64_t>(i) + 2;
      if (sizes[i] == 0) continue;
      if (sizes[i] == 1) {
        x = onnx_reduce(form, "ReduceMax", x, {dim}, true);
        continue;
      }
      const int64_t in = form.fixed_size(dim);
      OnnxValues windows;
      for (int64_t k = 0; k < sizes[i]; ++k) {
        const int64_t end = ((k + 1) * in + sizes[i] - 1) / sizes[i];
        const OnnxValue window =
            form.op("Slice", {x, form.ints({k * in / sizes[i]}), form.ints({end}), form.ints({dim})});
        windows.push_back(onnx_reduce(form, "ReduceMax", window, {dim}, true));
      }
      x = form.op("Concat", windows, {{"axis", dim}});
    }
    return x;
  }

  /// Of windows that are all alike, as ONNX has them.
  static void give_with_indices(OnnxForm& form, const std::vector<int64_t>& sizes) {
    PoolWindow<kDims> window;
    for (size_t i = 0; i < kDims; ++i) {
      const int64_t in = form.fixed_size(static_cast<int64_t>(i) + 2);
      const int64_t out = sizes[i] == 0 ? in : sizes[i];
      if (in % out != 0) form.refuse("return_indices needs an output_size that divides the input's");
      window.kernel_size[i] = in / out;
    }
    for (const OnnxValue& value :
         max_pool_form(form, form.input(), window_attributes<kDims>(window, Sizes<kDims>(0)), true)) {
      form.give(value);
    }
  }

  std::vector<int64_t> output_sizes(const at::Tensor& input) const {
    if (const auto* all = std::get_if<int64_t>(&output_size)) return std::vector<int64_t>(kDims, *all);
    std::vector<int64_t> sizes;
    for (const std::optional<int64_t>& size : std::get<1>(output_size)) {
      sizes.push_back(size ? *size : input.size(2 + static_cast<int64_t>(sizes.size())));
    }
    return sizes;
  }
};

template <int kDims>
void add_poolings_of(LayerRegistry& layers) {
  const std::string dims = std::to_string(kDims) + "d";
  const std::string windows = std::string(" each window of ") + kImage<kDims>;
  const std::string adaptive = " over windows chosen so that the output has the given size";
  layers.add<MaxPool<kDims>>("MaxPool" + dims, "the largest value in" + windows);
  layers.add<AvgPool<kDims>>("AvgPool" + dims, "the mean of" + windows);
  layers.add<LPPool<kDims>>("LPPool" + dims, "the p-norm of" + windows);
  layers.add<AdaptivePool<kDims, false>>("AdaptiveAvgPool" + dims, "means" + adaptive);
  layers.add<AdaptivePool<kDims, true>>("AdaptiveMaxPool" + dims, "maxima" + adaptive);
}

}  // namespace

void add_poolings(LayerRegistry& layers) {
  add_poolings_of<1>(layers);
  add_poolings_of<2>(layers);
  add_poolings_of<3>(layers);
}

}  // namespace trainrun
