#include <ATen/ops/_upsample_nearest_exact1d.h>
#include <ATen/ops/_upsample_nearest_exact2d.h>
#include <ATen/ops/_upsample_nearest_exact3d.h>
#include <ATen/ops/channel_shuffle.h>
#include <ATen/ops/col2im.h>
#include <ATen/ops/im2col.h>
#include <ATen/ops/pixel_shuffle.h>
#include <ATen/ops/pixel_unshuffle.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/upsample_bicubic2d.h>
#include <ATen/ops/upsample_bilinear2d.h>
#include <ATen/ops/upsample_linear1d.h>
#include <ATen/ops/upsample_nearest1d.h>
#include <ATen/ops/upsample_nearest2d.h>
#include <ATen/ops/upsample_nearest3d.h>
#include <ATen/ops/upsample_trilinear3d.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "registry/layers/adaptive_avg_pool.h"
#include "registry/layers/onnx_parts.h"
#include "registry/layers/sizes.h"

namespace trainrun {
namespace {

TRAINRUN_OP_OF_DIMS(upsample_nearest, )
TRAINRUN_OP_OF_DIMS(_upsample_nearest_exact, )  // NOLINT(readability-identifier-naming)

/// Calls `function.operator()<kDims>()` for the number of dimensions of `input` [N, C, …].
template <class Function>
at::Tensor with_dims(const at::Tensor& input, const Function& function) {
  if (input.dim() == 3) return function.template operator()<1>();
  if (input.dim() == 4) return function.template operator()<2>();
  return function.template operator()<3>();
}

/// One number for all dimensions, or a list.
template <class T>
using OneOrList = std::variant<T, std::vector<T>>;

template <class T>
std::vector<T> for_dims(const OneOrList<T>& numbers, size_t dims) {
  const T* one = std::get_if<T>(&numbers);
  return one ? std::vector<T>(dims, *one) : std::get<1>(numbers);
}

/// torch.nn.Upsample, with what torch.nn.functional.interpolate makes of its options.
struct Upsample {
  std::optional<OneOrList<int64_t>> size;
  std::optional<OneOrList<double>> scale_factor;
  std::string mode = "nearest";
  std::optional<bool> align_corners;
  std::optional<bool> recompute_scale_factor;
  static void describe(Fields<Upsample>& f) {
    f.optional("size", &Upsample::size).at_least(1).doc("size of the output, or one for each dimension");
    f.optional("scale_factor", &Upsample::scale_factor)
        .greater_than(0)
        .doc("how many times larger the output is, or one factor for each dimension");
    f.optional("mode", &Upsample::mode)
        .one_of({"nearest", "nearest-exact", "area", "linear", "bilinear", "bicubic", "trilinear"})
        .doc("linear is for [N, C, L], bilinear and bicubic for [N, C, H, W], trilinear for [N, C, D, H, W]");
    f.optional("align_corners", &Upsample::align_corners)
        .doc("corners keep their values; for the linear modes and bicubic; false by default");
    f.optional("recompute_scale_factor", &Upsample::recompute_scale_factor)
        .doc("interpolate by the ratio of the whole sizes, not by scale_factor itself");
    f.either("size", "scale_factor");
    f.rule({.when = {the("size").is_given()},
            .all = {the("recompute_scale_factor").is_not(true)},
            .at = "recompute_scale_factor",
            .message = "has no effect if size is given"});
  }

  void check(Checker& checker) const {
    if (align_corners && dims_of_mode() == 0) checker.fail("align_corners", "has no meaning for mode " + mode);
  }

  Layer build(const LayerInputs& in) const {
    in.require_dims(3, 5, "[N, C, L], [N, C, H, W] or [N, C, D, H, W]");
    const size_t dims = in.shape().size() - 2;
    if (dims_of_mode() != 0 && dims != dims_of_mode()) {
      throw LayerError("mode " + mode + " is for inputs of " + std::to_string(dims_of_mode() + 2) +
                       " dimensions, the batch and channels counted");
    }
    if (size) require_length("size", for_dims(*size, dims).size(), dims);
    if (scale_factor) require_length("scale_factor", for_dims(*scale_factor, dims).size(), dims);
    return layer_of_function([*this](const at::Tensor& input) { return interpolate(input); });
  }

  void onnx(OnnxForm& form) const {
    const auto dims = static_cast<size_t>(form.rank()) - 2;
    std::vector<double> factors;
    if (scale_factor) factors = for_dims(*scale_factor, dims);
    if (mode == "area") {
      std::vector<int64_t> sizes(dims);
      if (size) sizes = for_dims(*size, dims);
      for (size_t i = 0; i < factors.size(); ++i) {
        sizes[i] = static_cast<int64_t>(static_cast<double>(form.fixed_size(static_cast<int64_t>(i) + 2)) * factors[i]);
      }
      return form.give(onnx_adaptive_mean(form, sizes));
    }
    const bool is_whole = std::all_of(factors.begin(), factors.end(), [](double factor) {
      return factor >= 1 && factor <= kMostWhole && factor == std::floor(factor);
    });
    if (dims_of_mode() == 0 && (size || !is_whole)) return form.give(nearest_form(form, factors));
    OnnxValues inputs = {form.input(), {}};
    if (size) {
      inputs.emplace_back();
      inputs.push_back(form.ints(for_dims(*size, dims)));
    } else if (recompute_scale_factor.value_or(false)) {
      const OnnxValue whole = form.cast(form.sizes(form.input(), 2, form.rank()), at::kDouble);
      const OnnxValue scaled = form.op("Mul", {whole, form.constant(at::tensor(factors, at::kDouble))});
      inputs.emplace_back();
      inputs.push_back(form.cast(form.op("Floor", {scaled}), at::kLong));
    } else {
      inputs.push_back(form.constant(at::tensor(factors, at::kFloat)));
    }
    form.give(form.op("Resize", inputs, resizing(dims)));
  }

 private:
  static constexpr double kMostWhole = 8;

  /// Each point by its number, which ONNX's Resize rounds in another way.
  OnnxValue nearest_form(OnnxForm& form, const std::vector<double>& factors) const {
    OnnxValue x = form.input();
    for (int64_t dim = 2; dim < form.rank(); ++dim) {
      const auto i = static_cast<size_t>(dim) - 2;
      const OnnxValue before = form.op("Squeeze", {form.sizes(form.input(), dim, dim + 1)});
      OnnxValue after;
      OnnxValue step = form.number(factors.empty() ? 1 : static_cast<float>(1 / factors[i]));
      if (size) {
        after = form.number(static_cast<double>(for_dims(*size, static_cast<size_t>(form.rank()) - 2)[i]), at::kLong);
      } else {
        const OnnxValue scaled = onnx_double_product(form, before, factors[i]);
        after = form.cast(form.op("Floor", {scaled}), at::kLong);
      }
      if (size || recompute_scale_factor.value_or(false)) {
        step = form.op("Div", {form.cast(before, at::kFloat), form.cast(after, at::kFloat)});
      }
      const OnnxValue range = form.op("Range", {form.number(0, at::kLong), after, form.number(1, at::kLong)});
      OnnxValue places = form.cast(range, at::kFloat);
      if (mode == "nearest-exact") places = onnx_with(form, "Add", places, 0.5);
      places = form.cast(form.op("Floor", {form.op("Mul", {places, step})}), at::kLong);
      const OnnxValue last = form.op("Sub", {before, form.number(1, at::kLong)});
      x = form.op("Gather", {x, form.op("Min", {places, last})}, {{"axis", dim}});
    }
    return x;
  }

  static OnnxValue onnx_double_product(OnnxForm& form, const OnnxValue& x, double factor) {
    return form.op("Mul", {form.cast(x, at::kDouble), form.number(factor, at::kDouble)});
  }

  OnnxAttributes resizing(size_t dims) const {
    std::vector<int64_t> axes(dims);
    std::iota(axes.begin(), axes.end(), int64_t{2});
    OnnxAttributes attributes = {{"axes", axes}};
    if (dims_of_mode() == 0) {
      const bool exact = mode == "nearest-exact";
      attributes.emplace_back("mode", "nearest");
      attributes.emplace_back("coordinate_transformation_mode", exact ? "half_pixel" : "asymmetric");
      attributes.emplace_back("nearest_mode", exact ? "round_prefer_ceil" : "floor");
      return attributes;
    }
    const bool aligned = align_corners.value_or(false);
    attributes.emplace_back("mode", mode == "bicubic" ? "cubic" : "linear");
    attributes.emplace_back("coordinate_transformation_mode", aligned ? "align_corners" : "half_pixel");
    if (mode == "bicubic") attributes.emplace_back("cubic_coeff_a", -0.75);
    return attributes;
  }

  /// How many dimensions the mode is for; 0: any.
  size_t dims_of_mode() const {
    static const std::map<std::string, size_t> dims = {
        {"linear", 1}, {"bilinear", 2}, {"bicubic", 2}, {"trilinear", 3}};
    const auto known = dims.find(mode);
    return known == dims.end() ? 0 : known->second;
  }

  static void require_length(const std::string& parameter, size_t length, size_t dims) {
    if (length == dims) return;
    throw LayerError(parameter + " has " + std::to_string(length) + " numbers for an input of " + std::to_string(dims) +
                     " dimensions beside batch and channels");
  }

  at::Tensor interpolate(const at::Tensor& input) const {
    const size_t dims = static_cast<size_t>(input.dim()) - 2;
    std::optional<std::vector<int64_t>> sizes;
    std::optional<std::vector<double>> factors;
    if (size) sizes = for_dims(*size, dims);
    if (scale_factor) factors = for_dims(*scale_factor, dims);
    if (factors && (recompute_scale_factor.value_or(false) || mode == "area")) {
      sizes.emplace();
      for (size_t i = 0; i < dims; ++i) {
        sizes->push_back(static_cast<int64_t>(static_cast<double>(input.sizes()[i + 2]) * (*factors)[i]));
      }
      factors.reset();
    }
    at::OptionalIntArrayRef to;
    if (sizes) to = *sizes;
    std::optional<at::ArrayRef<double>> by;
    if (factors) by = *factors;
    const bool aligned = align_corners.value_or(false);
    if (mode == "linear") return at::upsample_linear1d(input, to, aligned, by);
    if (mode == "bilinear") return at::upsample_bilinear2d(input, to, aligned, by);
    if (mode == "bicubic") return at::upsample_bicubic2d(input, to, aligned, by);
    if (mode == "trilinear") return at::upsample_trilinear3d(input, to, aligned, by);
    return with_dims(input, [&]<int kDims>() {
      if (mode == "area") return adaptive_avg_pool<kDims>(input, *sizes);
      return mode == "nearest" ? upsample_nearest<kDims>(input, to, by) : _upsample_nearest_exact<kDims>(input, to, by);
    });
  }
};

/// A layer with one number, which must fit the channels or sizes of [N, C, H, W]: LibTorch says how.
template <at::Tensor (*kFunction)(const at::Tensor&, int64_t)>
Layer rearranging(const LayerInputs& in, int64_t number) {
  in.require_dims(4, 64, kImage<2>);
  return layer_of_function([number](const at::Tensor& input) { return kFunction(input, number); });
}

/// What `change` makes of the last three dimensions, those before them as one.
template <class Change>
OnnxValue over_images(OnnxForm& form, const Change& change) {
  const OnnxValue& x = form.input();
  if (form.rank() == 4) return change(x);
  const auto joined = [&](const OnnxValue& first, const OnnxValue& then) {
    return form.op("Concat", {first, then}, {{"axis", 0}});
  };
  const int64_t before = form.rank() - 3;
  const OnnxValue sizes = joined(form.ints({-1}), form.sizes(x, before, form.rank()));
  const OnnxValue changed = change(form.op("Reshape", {x, sizes}));
  return form.op("Reshape", {changed, joined(form.sizes(x, 0, before), form.sizes(changed, 1, 4))});
}

/// [N, a · b, …], whose channels are groups of b, with groups of a instead.
OnnxValue channels_turned(OnnxForm& form, const OnnxValue& x, int64_t a, int64_t b) {
  const OnnxValue turned = form.transpose(form.reshape(x, {0, a, b, -1}), {0, 2, 1, 3});
  return form.op("Reshape", {turned, form.op("Shape", {x})});
}

struct PixelShuffle {
  int64_t upscale_factor = 1;
  static void describe(Fields<PixelShuffle>& f) {
    f.required("upscale_factor", &PixelShuffle::upscale_factor)
        .at_least(1)
        .doc("r of [N, C·r·r, H, W] to [N, C, H·r, W·r]");
  }
  Layer build(const LayerInputs& in) const { return rearranging<at::pixel_shuffle>(in, upscale_factor); }
  void onnx(OnnxForm& form) const {
    form.give(over_images(form, [&](const OnnxValue& x) {
      return form.op("DepthToSpace", {x}, {{"blocksize", upscale_factor}, {"mode", "CRD"}});
    }));
  }
};

struct PixelUnshuffle {
  int64_t downscale_factor = 1;
  static void describe(Fields<PixelUnshuffle>& f) {
    f.required("downscale_factor", &PixelUnshuffle::downscale_factor)
        .at_least(1)
        .doc("r of [N, C, H·r, W·r] to [N, C·r·r, H, W]");
  }
  Layer build(const LayerInputs& in) const { return rearranging<at::pixel_unshuffle>(in, downscale_factor); }
  void onnx(OnnxForm& form) const {
    const int64_t channels = form.fixed_size(-3);
    form.give(over_images(form, [&](const OnnxValue& x) {
      const OnnxValue deep = form.op("SpaceToDepth", {x}, {{"blocksize", downscale_factor}});
      return channels_turned(form, deep, downscale_factor * downscale_factor, channels);
    }));
  }
};

struct ChannelShuffle {
  int64_t groups = 1;
  static void describe(Fields<ChannelShuffle>& f) {
    f.required("groups", &ChannelShuffle::groups).at_least(1).doc("groups whose channels are dealt out in turn");
  }
  Layer build(const LayerInputs& in) const {
    in.require_dims(3, 64, "[N, C, …]");
    return layer_of_function([groups = groups](const at::Tensor& input) { return at::channel_shuffle(input, groups); });
  }
  void onnx(OnnxForm& form) const {
    form.give(channels_turned(form, form.input(), groups, form.fixed_size(1) / groups));
  }
};

/// torch.nn.Fold and Unfold: patches of an image as columns, and back.
struct Patches {
  Pair kernel_size;
  Pair dilation = 1;
  Pair padding = 0;
  Pair stride = 1;
  template <class P>
  static void describe_patches(Fields<P>& f) {
    f.required("kernel_size", &Patches::kernel_size).at_least(1).doc("height and width of a patch");
    f.optional("dilation", &Patches::dilation).at_least(1).doc("distance between a patch's points");
    f.optional("padding", &Patches::padding).at_least(0).doc("zeros added at each border of the image");
    f.optional("stride", &Patches::stride).at_least(1).doc("distance between patches");
  }
  OnnxAttributes onnx_patches() const {
    return {{"dilations", std::vector<int64_t>(dilation.begin(), dilation.end())},
            {"pads", std::vector<int64_t>{padding[0], padding[1], padding[0], padding[1]}},
            {"strides", std::vector<int64_t>(stride.begin(), stride.end())}};
  }
};

struct Unfold : Patches {
  static void describe(Fields<Unfold>& f) { describe_patches(f); }
  Layer build(const LayerInputs& in) const {
    require_image<2>(in);
    require_window<2>(in, kernel_size, stride, padding, dilation, false);
    return layer_of_function(
        [*this](const at::Tensor& input) { return at::im2col(input, kernel_size, dilation, padding, stride); });
  }
  /// A convolution of each channel with kernels that have a single 1.
  void onnx(OnnxForm& form) const {
    const int64_t channels = form.fixed_size(1);
    const int64_t points = kernel_size[0] * kernel_size[1];
    const at::Tensor kernels = at::zeros({channels, points, points});
    kernels.diagonal(0, 1, 2).fill_(1);
    OnnxAttributes attributes = onnx_patches();
    attributes.emplace_back("group", channels);
    const OnnxValue kernel =
        form.constant(kernels.reshape({channels * points, 1, kernel_size[0], kernel_size[1]}).contiguous());
    form.give(form.reshape(form.op("Conv", {form.input(), kernel}, attributes), {0, channels * points, -1}));
  }
};

struct Fold : Patches {
  Pair output_size;
  static void describe(Fields<Fold>& f) {
    f.required("output_size", &Fold::output_size).at_least(1).doc("height and width of the output image");
    describe_patches(f);
  }
  Layer build(const LayerInputs& in) const {
    in.require_dims(3, 3, "[N, C·points, patches]");
    return layer_of_function([*this](const at::Tensor& input) {
      return at::col2im(input, output_size, kernel_size, dilation, padding, stride);
    });
  }
  void onnx(OnnxForm& form) const {
    form.give(form.op(
        "Col2Im",
        {form.input(), form.ints({output_size[0], output_size[1]}), form.ints({kernel_size[0], kernel_size[1]})},
        onnx_patches()));
  }
};

}  // namespace

void add_samplings(LayerRegistry& layers) {
  layers.add<Upsample>("Upsample", "a larger (or smaller) image, interpolated");
  layers.add<PixelShuffle>("PixelShuffle", "channels become pixels: r·r channels, one image r times as large");
  layers.add<PixelUnshuffle>("PixelUnshuffle", "pixels become channels: the inverse of PixelShuffle");
  layers.add<ChannelShuffle>("ChannelShuffle", "deals out the channels of several groups in turn");
  layers.add<Unfold>("Unfold", "patches of [N, C, H, W] as columns: [N, C·points, patches]");
  layers.add<Fold>("Fold", "sums of patches, [N, C·points, patches], where they overlap in [N, C, H, W]");
}

}  // namespace trainrun
