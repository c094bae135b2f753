#include "registry/kernels/linear.h"

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/relu.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

#include "registry/kernels/few_rows_simd.h"
#include "registry/kernels/own_products.h"
#include "registry/kernels/plain_tensor.h"
#include "registry/kernels/sparse_product.h"
#include "registry/tensors/gradient_places.h"

namespace trainrun::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// x [rows, in], weight [out, in] and bias [out], all without gaps.
at::Tensor product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, CpuPath path) {
  const FewRows shape{x.size(0), x.size(1), weight.size(0)};
  at::Tensor y = at::empty({shape.rows, shape.out}, x.options());
  const at::Tensor columns = at::empty({shape.panels() * shape.in * kPanel}, x.options());
  const auto* const from = x.const_data_ptr<float>();
  const auto* const w = weight.const_data_ptr<float>();
  const auto* const b = bias.defined() ? bias.const_data_ptr<float>() : nullptr;
  auto* const turned = columns.mutable_data_ptr<float>();
  auto* const to = y.mutable_data_ptr<float>();
  constexpr int64_t kFewestFeatures = 512, kFewestOutputs = 12;  // of a thread
  at::parallel_for(0, shape.in, kFewestFeatures, [&](int64_t begin, int64_t end) {
    TRAINRUN_LOOP_OF(path, few_rows_transpose)(shape, from, begin, end, turned);
  });
  at::parallel_for(0, shape.out, kFewestOutputs, [&](int64_t begin, int64_t end) {
    const at::Tensor scratch = at::empty({(end - begin) * kPanel}, at::kFloat);
    TRAINRUN_LOOP_OF(path, few_rows_product)
    (shape, turned, w, b, begin, end, to, scratch.mutable_data_ptr<float>());
  });
  return y;
}

struct FewRowsLinear : torch::autograd::Function<FewRowsLinear> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, CpuPath path) {
    context->save_for_backward({x, weight});
    context->saved_data["has_bias"] = bias.has_value();
    return product(x, weight, bias.value_or(at::Tensor()), path);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    variable_list result(4);
    const at::Tensor &of_y = gradients[0], &x = saved[0], &weight = saved[1];
    const bool is_final = !c10::GradMode::is_enabled();  // else the gradients' gradients are wanted, too
    const bool is_sparse = is_final && has_many_zeros(of_y, x.size(1));
    if (context->needs_input_grad(0)) result[0] = is_sparse ? sparse_product(of_y, weight) : of_y.mm(weight);
    if (context->needs_input_grad(1)) {
      at::Tensor place = is_final ? take_gradient_place(weight) : at::Tensor();
      if (is_sparse) {
        result[1] = sparse_product(of_y.t(), x, place);
      } else {
        result[1] = place.defined() ? at::mm_out(place, of_y.t(), x) : of_y.t().mm(x);
      }
    }
    if (context->saved_data["has_bias"].toBool() && context->needs_input_grad(2)) result[2] = of_y.sum(0);
    return result;
  }
};

bool is_computed_here(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  if (!uses_own_products() || at::autocast::is_autocast_enabled(at::kCPU) || weight.dim() != 2 || x.dim() < 2) {
    return false;
  }
  if (!is_dense_float(x) || !is_dense_float(weight) || (bias.defined() && !is_dense_float(bias))) return false;
  return x.size(-1) == weight.size(1) && (!bias.defined() || bias.numel() == weight.size(0)) && x.numel() > 0 &&
         few_rows_pay(x.numel() / x.size(-1), x.size(-1), weight.size(0));
}

}  // namespace

bool few_rows_pay(int64_t rows, int64_t in, int64_t out) {
  constexpr int64_t kMostRows = 128, kFewestFeatures = 64, kFewestOutputs = 8;
  const int64_t computed = (rows + kPanel - 1) / kPanel * kPanel;  // also those that are not there
  return best_cpu_path() == CpuPath::kAvx512 && rows <= kMostRows && 4 * computed <= 5 * rows &&
         in >= kFewestFeatures && out >= kFewestOutputs;
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, CpuPath path) {
  const auto given_bias = optional_of(bias);
  if (!is_computed_here(x, weight, bias)) {
    const LinearTerms terms{weight, bias};
    return supports_linear_function(x, terms) ? linear_function(x, terms, path) : at::linear(x, weight, given_bias);
  }
  const at::Tensor rows = x.dim() == 2 ? x : x.flatten(0, -2);
  const bool is_trained = x.requires_grad() || weight.requires_grad() || (bias.defined() && bias.requires_grad());
  at::Tensor y = c10::GradMode::is_enabled() && is_trained ? FewRowsLinear::apply(rows, weight, given_bias, path)
                                                           : product(rows, weight, bias, path);
  if (x.dim() == 2) return y;
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = weight.size(0);
  return y.view(sizes);
}

at::Tensor activated_linear(const at::Tensor& x, const LinearTerms& terms) {
  const bool has_own_product = !terms.is_transposed && is_computed_here(x, terms.weight, terms.bias);
  if (!has_own_product && supports_linear_function(x, terms)) return linear_function(x, terms);
  const at::Tensor weight = terms.is_transposed ? terms.weight.t() : terms.weight;
  at::Tensor product = linear(x, weight, terms.bias);
  switch (terms.activation) {
    case Activation::kRelu:  // a change of a view would cost the backward pass a copy
      return product.is_view() ? at::relu(product) : at::relu_(product);
    case Activation::kGelu:
      return at::gelu(product);
    case Activation::kGeluTanh:
      return at::gelu(product, "tanh");
    default:
      return product;
  }
}

}  // namespace trainrun::kernels
