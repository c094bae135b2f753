#include "registry/kernels/silu_product.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "registry/kernels/parts.h"
#include "registry/kernels/plain_tensor.h"
#include "registry/kernels/silu_product_simd.h"

namespace trainrun::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

SiluProductRange range_of(const at::Tensor& x, int64_t begin, int64_t end) {
  return {begin, end, x.scalar_type() == at::kBFloat16};
}

at::Tensor product(const at::Tensor& gate, const at::Tensor& up, CpuPath path) {
  at::Tensor y = at::empty_like(gate);
  const void *const from_gate = gate.const_data_ptr(), *const from_up = up.const_data_ptr();
  void* const to = y.mutable_data_ptr();
  at::parallel_for(0, gate.numel(), kNumbersOfThread, [&](int64_t begin, int64_t end) {
    TRAINRUN_LOOP_OF(path, silu_product)(range_of(gate, begin, end), from_gate, from_up, to);
  });
  return y;
}

/// By ATen's operations, which have derivatives themselves.
variable_list derivable_gradients(const at::Tensor& gate, const at::Tensor& up, const at::Tensor& grad_y) {
  const at::Tensor share = at::sigmoid(gate);
  return {grad_y * up * share * (1 + gate * (1 - share)), grad_y * gate * share, at::Tensor()};
}

struct SiluProduct : torch::autograd::Function<SiluProduct> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate, const at::Tensor& up, CpuPath path) {
    context->save_for_backward({gate, up});
    context->saved_data["path"] = static_cast<int64_t>(path);
    return product(gate, up, path);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &gate = saved[0], &up = saved[1];
    if (c10::GradMode::is_enabled()) return derivable_gradients(gate, up, gradients[0]);
    const auto path = static_cast<CpuPath>(context->saved_data["path"].toInt());
    const at::Tensor of_y = gradients[0].contiguous();
    at::Tensor of_gate = at::empty_like(gate), of_up = at::empty_like(up);
    const void *const from_gate = gate.const_data_ptr(), *const from_up = up.const_data_ptr();
    const void* const from_y = of_y.const_data_ptr();
    void *const to_gate = of_gate.mutable_data_ptr(), *const to_up = of_up.mutable_data_ptr();
    at::parallel_for(0, gate.numel(), kNumbersOfThread, [&](int64_t begin, int64_t end) {
      TRAINRUN_LOOP_OF(path, silu_product_back)
      (range_of(gate, begin, end), from_gate, from_up, from_y, to_gate, to_up);
    });
    return {of_gate, of_up, at::Tensor()};
  }
};

}  // namespace

bool supports_silu_product(const at::Tensor& gate, const at::Tensor& up) {
  const at::ScalarType type = gate.scalar_type();
  return (type == at::kFloat || type == at::kBFloat16) && up.scalar_type() == type && gate.sizes() == up.sizes() &&
         is_plain_cpu(gate) && is_plain_cpu(up) && gate.is_contiguous() && up.is_contiguous();
}

at::Tensor silu_product(const at::Tensor& gate, const at::Tensor& up, CpuPath path) {
  if (!supports_silu_product(gate, up)) return at::silu(gate) * up;
  const bool is_trained = c10::GradMode::is_enabled() && (gate.requires_grad() || up.requires_grad());
  return is_trained ? SiluProduct::apply(gate, up, path) : product(gate, up, path);
}

}  // namespace trainrun::kernels
