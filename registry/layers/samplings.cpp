#include <ATen/ops/_upsample_nearest_exact1d.h>
#include <ATen/ops/_upsample_nearest_exact2d.h>
#include <ATen/ops/_upsample_nearest_exact3d.h>
#include <ATen/ops/channel_shuffle.h>
#include <ATen/ops/col2im.h>
#include <ATen/ops/im2col.h>
#include <ATen/ops/pixel_shuffle.h>
#include <ATen/ops/pixel_unshuffle.h>
#include <ATen/ops/upsample_bicubic2d.h>
#include <ATen/ops/upsample_bilinear2d.h>
#include <ATen/ops/upsample_linear1d.h>
#include <ATen/ops/upsample_nearest1d.h>
#include <ATen/ops/upsample_nearest2d.h>
#include <ATen/ops/upsample_nearest3d.h>
#include <ATen/ops/upsample_trilinear3d.h>

#include <map>

#include "registry/layers/adaptive_avg_pool.h"
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
        .doc("corners keep their values; of the linear modes and bicubic; false by default");
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

 private:
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

struct PixelShuffle {
  int64_t upscale_factor = 1;
  static void describe(Fields<PixelShuffle>& f) {
    f.required("upscale_factor", &PixelShuffle::upscale_factor)
        .at_least(1)
        .doc("r of [N, C·r·r, H, W] to [N, C, H·r, W·r]");
  }
  Layer build(const LayerInputs& in) const { return rearranging<at::pixel_shuffle>(in, upscale_factor); }
};

struct PixelUnshuffle {
  int64_t downscale_factor = 1;
  static void describe(Fields<PixelUnshuffle>& f) {
    f.required("downscale_factor", &PixelUnshuffle::downscale_factor)
        .at_least(1)
        .doc("r of [N, C, H·r, W·r] to [N, C·r·r, H, W]");
  }
  Layer build(const LayerInputs& in) const { return rearranging<at::pixel_unshuffle>(in, downscale_factor); }
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
};

struct Unfold : Patches {
  static void describe(Fields<Unfold>& f) { describe_patches(f); }
  Layer build(const LayerInputs& in) const {
    require_image<2>(in);
    require_window<2>(in, kernel_size, stride, padding, dilation, false);
    return layer_of_function(
        [*this](const at::Tensor& input) { return at::im2col(input, kernel_size, dilation, padding, stride); });
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
};

}  // namespace

void add_samplings(LayerRegistry& layers) {
  layers.add<Upsample>("Upsample", "a larger (or smaller) image, interpolated");
  layers.add<PixelShuffle>("PixelShuffle", "channels become pixels: r·r channels, one image r times as large");
  layers.add<PixelUnshuffle>("PixelUnshuffle", "pixels become channels: the inverse of PixelShuffle");
  layers.add<ChannelShuffle>("ChannelShuffle", "deals the channels of several groups out in turn");
  layers.add<Unfold>("Unfold", "patches of [N, C, H, W] as columns: [N, C·points, patches]");
  layers.add<Fold>("Fold", "sums of patches, [N, C·points, patches], where they overlap in [N, C, H, W]");
}

}  // namespace trainrun
