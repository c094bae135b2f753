#include "registry/kernels/product_convolution.h"

#include <ATen/Parallel.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <vector>

#include "registry/kernels/matrix_product.h"
#include "registry/kernels/own_products.h"
#include "registry/kernels/parts.h"
#include "registry/tensors/gradient_places.h"

namespace trainrun::kernels {
namespace {

constexpr auto kPointsLast = at::MemoryFormat::ChannelsLast;

/// [N * H * W, C], a view of x [N, C, H, W], whose channels are last.
at::Tensor points_of(const at::Tensor& x) { return x.permute({0, 2, 3, 1}).view({-1, x.size(1)}); }

/// weight [K, C, R, S] as [K, C * R * S], a view.
at::Tensor matrix_of(const at::Tensor& weight) { return weight.view({weight.size(0), -1}); }

/// The points of x [N, C, H, W] that a stride meets.
at::Tensor met_points(const at::Tensor& x, const std::array<int64_t, 2>& stride) {
  return x.slice(2, 0, std::nullopt, stride[0]).slice(3, 0, std::nullopt, stride[1]);
}

/// rows [N * H * W, C] as [N, C, H, W] with channels last, a view.
at::Tensor images_of(const at::Tensor& rows, int64_t images, const std::array<int64_t, 2>& size) {
  return rows.view({images, size[0], size[1], rows.size(1)}).permute({0, 3, 1, 2});
}

}  // namespace

ProductConvolution::ProductConvolution(at::IntArrayRef x, at::IntArrayRef weight, std::array<int64_t, 2> stride,
                                       std::array<int64_t, 2> padding, bool is_bfloat16)
    : images_(x[0]),
      channels_(x[1]),
      filters_(weight[0]),
      image_{x[2], x[3]},
      kernel_{weight[2], weight[3]},
      stride_(stride),
      padding_(padding),
      out_{(x[2] + 2 * padding[0] - weight[2]) / stride[0] + 1, (x[3] + 2 * padding[1] - weight[3]) / stride[1] + 1},
      is_bfloat16_(is_bfloat16) {}

at::Tensor ProductConvolution::forward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) const {
  return images_of(product(patches(x), matrix_of(weight).t(), x.scalar_type(), bias), images_, out_);
}

at::Tensor ProductConvolution::input_gradient(const at::Tensor& grad_y, const at::Tensor& weight) const {
  if (!sees_points()) return sum_of_patches(product(points_of(grad_y), matrix_of(weight), at::kFloat, {}));
  at::Tensor met = images_of(product(points_of(grad_y), matrix_of(weight), grad_y.scalar_type(), {}), images_, out_);
  if (stride_[0] == 1 && stride_[1] == 1) return met;
  at::Tensor grad_x = at::empty({images_, channels_, image_[0], image_[1]}, grad_y.options(), kPointsLast).zero_();
  met_points(grad_x, stride_).copy_(met);
  return grad_x;
}

bool ProductConvolution::add_input_gradient(const at::Tensor& sum, const at::Tensor& grad_y,
                                            const at::Tensor& weight) const {
  const at::Tensor a = points_of(grad_y), b = matrix_of(weight);
  const bool is_whole = sees_points() && stride_[0] == 1 && stride_[1] == 1;
  if (!is_whole || is_bfloat16_ || !is_own(a, b)) return false;
  add_matrix_product(points_of(sum), a, b);
  return true;
}

at::Tensor ProductConvolution::filter_gradient(const at::Tensor& x, const at::Tensor& grad_y,
                                               const at::Tensor& weight) const {
  at::Tensor gradient = take_gradient_place(weight);
  if (!gradient.defined()) gradient = at::empty(weight.sizes(), weight.options());
  at::Tensor matrix = matrix_of(gradient);
  const at::Tensor a = points_of(grad_y).t(), b = patches(x);
  if (is_own(a, b)) {
    matrix_product(a, b, at::kFloat, {}, matrix);
  } else {
    at::mm_out(matrix, a, b);
  }
  return gradient;
}

/// Convolutions of bfloat16 are computed here where the processor multiplies it.
bool ProductConvolution::is_own(const at::Tensor& a, const at::Tensor& b) const {
  return is_bfloat16_ || (uses_own_products() && supports_matrix_product(a, b));
}

/// a b + bias, of `type`: where a is of bfloat16, so is what b is rounded to.
at::Tensor ProductConvolution::product(const at::Tensor& a, const at::Tensor& b, at::ScalarType type,
                                       const at::Tensor& bias) const {
  if (is_own(a, b)) return matrix_product(a, b, type, bias);
  return bias.defined() ? at::addmm(bias, a, b) : at::mm(a, b);
}

/// [points of the output, depth]
at::Tensor ProductConvolution::patches(const at::Tensor& x) const {
  if (sees_points()) return points_of(met_points(x, stride_).contiguous(kPointsLast));
  at::Tensor gathered = at::empty({images_ * out_[0] * out_[1], depth()}, x.options());
  const auto* from = static_cast<const uint16_t*>(x.const_data_ptr());
  auto* const to = static_cast<uint16_t*>(gathered.mutable_data_ptr());
  const std::vector<uint16_t> nothing(static_cast<size_t>(channels_));
  at::parallel_for(0, images_, images_of_thread(), [&](int64_t begin, int64_t end) {
    for (int64_t image = begin; image < end; ++image) {
      const uint16_t* const points = from + image * image_[0] * image_[1] * channels_;
      uint16_t* patch = to + image * out_[0] * out_[1] * depth();
      for (int64_t output = 0; output < out_[0] * out_[1]; ++output, patch += depth()) {
        std::array<const uint16_t*, kTaps> seen;
        const std::array<int64_t, kTaps> at = seen_by(output);
        for (size_t tap = 0; tap < kTaps; ++tap)
          seen[tap] = at[tap] < 0 ? nothing.data() : points + at[tap] * channels_;
        for (int64_t channel = 0; channel < channels_; ++channel) {
          for (size_t tap = 0; tap < kTaps; ++tap) patch[channel * kTaps + tap] = seen[tap][channel];
        }
      }
    }
  });
  return gathered;
}

/// The gradient of x, of bfloat16, from that of its patches, of float32: for each point, the sum over the patches that
/// hold it.
at::Tensor ProductConvolution::sum_of_patches(const at::Tensor& patches) const {
  at::Tensor grad_x =
      at::empty({images_, channels_, image_[0], image_[1]}, patches.options().dtype(at::kBFloat16), kPointsLast);
  const auto* from = patches.const_data_ptr<float>();
  auto* const to = static_cast<c10::BFloat16*>(grad_x.mutable_data_ptr());
  const int64_t of_image = image_[0] * image_[1] * channels_;
  at::parallel_for(0, images_, images_of_thread(), [&](int64_t begin, int64_t end) {
    std::vector<float> sums(static_cast<size_t>(of_image)), unseen(static_cast<size_t>(channels_));
    for (int64_t image = begin; image < end; ++image) {
      std::fill(sums.begin(), sums.end(), 0.0F);
      const float* patch = from + image * out_[0] * out_[1] * depth();
      for (int64_t output = 0; output < out_[0] * out_[1]; ++output, patch += depth()) {
        std::array<float*, kTaps> seen;
        const std::array<int64_t, kTaps> at = seen_by(output);
        for (size_t tap = 0; tap < kTaps; ++tap) {
          seen[tap] = at[tap] < 0 ? unseen.data() : sums.data() + at[tap] * channels_;
        }
        for (int64_t channel = 0; channel < channels_; ++channel) {
          for (size_t tap = 0; tap < kTaps; ++tap) seen[tap][channel] += patch[channel * kTaps + tap];
        }
      }
      std::copy(sums.begin(), sums.end(), to + image * of_image);
    }
  });
  return grad_x;
}

/// Which points of an image an output point sees, tap by tap; -1 where it sees padding.
std::array<int64_t, ProductConvolution::kTaps> ProductConvolution::seen_by(int64_t output) const {
  const int64_t top = output / out_[1] * stride_[0] - padding_[0], left = output % out_[1] * stride_[1] - padding_[1];
  std::array<int64_t, kTaps> points{};
  for (int64_t tap = 0; tap < static_cast<int64_t>(kTaps); ++tap) {
    const int64_t y = top + tap / kernel_[1], x = left + tap % kernel_[1];
    const bool is_inside = y >= 0 && y < image_[0] && x >= 0 && x < image_[1];
    points[tap] = is_inside ? y * image_[1] + x : -1;
  }
  return points;
}

int64_t ProductConvolution::images_of_thread() const { return rows_of_thread(out_[0] * out_[1] * depth()); }

}  // namespace trainrun::kernels
