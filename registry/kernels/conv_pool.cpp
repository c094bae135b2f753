#include "registry/kernels/conv_pool.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>

#include "registry/kernels/conv_pool_simd.h"
#include "registry/kernels/max_pool.h"
#include "registry/kernels/parts.h"
#include "registry/kernels/plain_tensor.h"

namespace trainrun::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kMostChannels = 4;     // beyond, a convolution is quicker by products of matrices
constexpr int64_t kFewestWindows = 6;    // of a row: fewer leave most lanes empty
constexpr int64_t kImagesTogether = 32;  // whose halves lie in the L2 cache

ConvPool shape_of(const at::Tensor& x, const at::Tensor& weight, const ConvPoolTerms& terms) {
  const int64_t taps = weight.size(2), added = 2 * terms.padding - taps + 1;
  return {x.size(0),
          x.size(1),
          x.size(2),
          x.size(3),
          weight.size(0),
          taps,
          terms.padding,
          (x.size(2) + added) / 2,
          (x.size(3) + added) / 2,
          x.scalar_type() == at::kBFloat16,
          terms.has_relu};
}

const char* image(const ConvPool& s, const at::Tensor& x, int64_t n) {
  const int64_t size = s.channels * s.height * s.width * (s.is_bfloat16 ? 2 : 4);
  return static_cast<const char*>(x.const_data_ptr()) + n * size;
}
int64_t outputs_of_image(const ConvPool& s) { return s.filters * s.out_height * s.out_width; }

/// The output, and the winners (uint8), undefined unless they are asked for.
std::pair<at::Tensor, at::Tensor> forward_of(const ConvPool& s, const at::Tensor& x, const at::Tensor& weight,
                                             const at::Tensor& bias, bool with_winners, CpuPath path) {
  const std::vector<int64_t> sizes = {s.images, s.filters, s.out_height, s.out_width};
  at::Tensor y = at::empty(sizes, x.options());
  at::Tensor winners = with_winners ? at::empty(sizes, x.options().dtype(at::kByte)) : at::Tensor();
  const auto* const w = weight.const_data_ptr<float>();
  const auto* const b = bias.defined() ? bias.const_data_ptr<float>() : nullptr;
  auto* const to = static_cast<char*>(y.mutable_data_ptr());
  auto* const won = with_winners ? winners.mutable_data_ptr<uint8_t>() : nullptr;
  in_parts(s.images, std::min<int64_t>(at::get_num_threads(), s.images), [&](int64_t begin, int64_t end, int64_t) {
    const at::Tensor halves = at::empty({s.image_size()}, at::kFloat);
    auto* const own = halves.mutable_data_ptr<float>();
    for (int64_t n = begin; n < end; ++n) {
      TRAINRUN_LOOP_OF(path, conv_pool_halves)(s, image(s, x, n), own);
      const int64_t place = n * outputs_of_image(s);
      TRAINRUN_LOOP_OF(path, conv_pool_forward)
      (s, own, w, b, to + place * (s.is_bfloat16 ? 2 : 4), won == nullptr ? nullptr : won + place);
    }
  });
  return {y, winners};
}

/// Of the weights and the bias.
std::pair<at::Tensor, at::Tensor> gradients_of(const ConvPool& s, const at::Tensor& x, const at::Tensor& winners,
                                               const at::Tensor& grad_y, CpuPath path) {
  const int64_t of_filter = s.channels * s.taps * s.taps, together = std::min(kImagesTogether, s.images);
  const at::Tensor halves = at::empty({together * s.image_size()}, at::kFloat);
  auto* const all = halves.mutable_data_ptr<float>();
  std::vector<double> sums(static_cast<size_t>(s.filters * of_filter)), of_bias(static_cast<size_t>(s.filters));
  const int64_t threads = at::get_num_threads();
  for (int64_t first = 0; first < s.images; first += together) {
    const int64_t count = std::min(together, s.images - first), place = first * outputs_of_image(s);
    in_parts(count, std::min(threads, count), [&](int64_t begin, int64_t end, int64_t) {
      for (int64_t n = begin; n < end; ++n) {
        TRAINRUN_LOOP_OF(path, conv_pool_halves)(s, image(s, x, first + n), all + n * s.image_size());
      }
    });
    const auto* const gradient = static_cast<const char*>(grad_y.const_data_ptr()) + place * (s.is_bfloat16 ? 2 : 4);
    in_parts(s.filters, std::min(threads, s.filters), [&](int64_t begin, int64_t end, int64_t) {
      TRAINRUN_LOOP_OF(path, conv_pool_backward)
      (s, all, count, gradient, winners.const_data_ptr<uint8_t>() + place, begin, end, sums.data(), of_bias.data());
    });
  }
  const auto as_floats = [](const std::vector<double>& from, at::IntArrayRef sizes) {
    at::Tensor to = at::empty(sizes, at::kFloat);
    std::transform(from.begin(), from.end(), to.mutable_data_ptr<float>(),
                   [](double sum) { return static_cast<float>(sum); });
    return to;
  };
  return {as_floats(sums, {s.filters, s.channels, s.taps, s.taps}), as_floats(of_bias, {s.filters})};
}

/// Weights as autocast to x's type has them, in float32.
at::Tensor rounded_as(const at::Tensor& x, const at::Tensor& tensor) {
  const bool is_rounded = tensor.defined() && x.scalar_type() == at::kBFloat16;
  return is_rounded ? tensor.detach().to(at::kBFloat16).to(at::kFloat) : tensor;
}

at::Tensor by_aten(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, const ConvPoolTerms& terms) {
  const at::Tensor y = at::conv2d(x, weight, optional_of(bias), {1, 1}, at::IntArrayRef{terms.padding, terms.padding});
  const MaxPoolWindow window{{2, 2}, {2, 2}};
  return terms.has_relu ? relu_max_pool2d(y, window) : max_pool2d(y, window);
}

struct ConvMaxPool : torch::autograd::Function<ConvMaxPool> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, const ConvPoolTerms& terms, CpuPath path) {
    const auto [y, winners] = forward_of(shape_of(x, weight, terms), x, rounded_as(x, weight),
                                         rounded_as(x, bias.value_or(at::Tensor())), true, path);
    context->save_for_backward({x, weight, bias.value_or(at::Tensor()), winners});
    context->saved_data["padding"] = terms.padding;
    context->saved_data["has_relu"] = terms.has_relu;
    context->saved_data["path"] = static_cast<int64_t>(path);
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &bias = saved[2], &winners = saved[3];
    const ConvPoolTerms terms{context->saved_data["padding"].toInt(), context->saved_data["has_relu"].toBool()};
    variable_list result(5);
    if (c10::GradMode::is_enabled()) {  // by ATen's operations, which have derivatives themselves
      variable_list inputs{weight};
      if (bias.defined()) inputs.push_back(bias);
      const at::Tensor y =
          by_aten(x, weight.to(x.scalar_type()), bias.defined() ? bias.to(x.scalar_type()) : bias, terms);
      const variable_list given = torch::autograd::grad({y}, inputs, {gradients[0]}, true, true, /*allow_unused=*/true);
      result[1] = given[0];
      if (bias.defined()) result[2] = given[1];
      return result;
    }
    const auto path = static_cast<CpuPath>(context->saved_data["path"].toInt());
    const auto [of_weight, of_bias] =
        gradients_of(shape_of(x, weight, terms), x, winners, gradients[0].contiguous(), path);
    result[1] = of_weight;
    if (bias.defined()) result[2] = of_bias;
    return result;
  }
};

}  // namespace

bool can_fuse_conv_max_pool2d(at::IntArrayRef x, at::IntArrayRef weight, const ConvPoolTerms& terms) {
  if (best_cpu_path() == CpuPath::kGeneric || x.size() < 3 || weight.size() != 4) return false;
  const int64_t taps = weight[2], channels = x[x.size() - 3];
  if ((taps != 3 && taps != 5) || weight[3] != taps || terms.padding > taps / 2) return false;
  const int64_t out_height = (x[x.size() - 2] + 2 * terms.padding - taps + 1) / 2;
  const int64_t out_width = (x[x.size() - 1] + 2 * terms.padding - taps + 1) / 2;
  return channels <= kMostChannels && weight[1] == channels && out_height >= 1 && out_width >= kFewestWindows;
}

at::Tensor conv_max_pool2d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                           const ConvPoolTerms& terms, CpuPath path) {
  const auto type = type_of_product(x);
  const bool is_ours = type && x.dim() == 4 && x.size(0) > 0 && is_plain_cpu(x) && x.is_contiguous() &&
                       !x.requires_grad() && is_dense_float(weight) && (!bias.defined() || is_dense_float(bias)) &&
                       can_fuse_conv_max_pool2d(x.sizes(), weight.sizes(), terms);
  if (!is_ours) return by_aten(x, weight, bias, terms);
  const at::Tensor typed = x.to(*type);
  const bool is_trained = weight.requires_grad() || (bias.defined() && bias.requires_grad());
  if (!c10::GradMode::is_enabled() || !is_trained) {
    return forward_of(shape_of(typed, weight, terms), typed, rounded_as(typed, weight), rounded_as(typed, bias), false,
                      path)
        .first;
  }
  return ConvMaxPool::apply(typed, weight, optional_of(bias), terms, path);
}

}  // namespace trainrun::kernels
