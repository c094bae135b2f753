#include "registry/kernels/cross_entropy.h"

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/nll_loss_backward.h>
#include <ATen/ops/nll_loss_forward.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tuple>

#include "registry/kernels/cross_entropy_simd.h"
#include "registry/kernels/parts.h"
#include "registry/kernels/plain_tensor.h"

namespace trainrun::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kPassedOver = -100;

LogitRows logit_rows(const at::Tensor& logits, const at::Tensor& target, int64_t ignore_index) {
  return {logits.const_data_ptr(), logits.size(1), logits.scalar_type() == at::kBFloat16,
          target.const_data_ptr<int64_t>(), ignore_index};
}

/// The loss needs one number of each row, and is ATen's own of a single class: its sums are in the same order.
struct Picked {
  at::Tensor log_p;   // [R, 1]: of the targets
  at::Tensor target;  // [R]: 0, the only class, or kPassedOver
  at::Tensor norms;   // [R, 2]: see cross_entropy_simd.h
};

Picked pick(const at::Tensor& logits, const at::Tensor& target, int64_t ignore_index, CpuPath path) {
  const auto options = logits.options().dtype(at::kFloat);
  Picked picked{at::zeros({logits.size(0), 1}, options), at::empty_like(target),
                at::empty({logits.size(0), 2}, options)};
  const LogitRows rows = logit_rows(logits, target, ignore_index);
  auto* const counted = picked.target.mutable_data_ptr<int64_t>();
  for (int64_t row = 0; row < target.numel(); ++row) {
    const int64_t wanted = rows.targets[row];
    counted[row] = wanted == ignore_index ? kPassedOver : 0;
    TORCH_CHECK_INDEX(counted[row] != 0 || (wanted >= 0 && wanted < rows.classes), "Target ", wanted,
                      " is out of bounds.");
  }
  auto *const norms = picked.norms.mutable_data_ptr<float>(), *const log_p = picked.log_p.mutable_data_ptr<float>();
  at::parallel_for(0, logits.size(0), rows_of_thread(rows.classes), [&](int64_t begin, int64_t end) {
    TRAINRUN_LOOP_OF(path, log_probabilities)(rows, begin, end, norms, log_p);
  });
  return picked;
}

struct CrossEntropy : torch::autograd::Function<CrossEntropy> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& logits, const at::Tensor& target,
                            int64_t reduction, int64_t ignore_index, CpuPath path) {
    const Picked picked = pick(logits, target, ignore_index, path);
    const auto [loss, total_weight] = at::nll_loss_forward(picked.log_p, picked.target, {}, reduction, kPassedOver);
    context->save_for_backward({logits, target, picked.log_p, picked.target, picked.norms, total_weight});
    context->saved_data["reduction"] = reduction;
    context->saved_data["ignore_index"] = ignore_index;
    context->saved_data["path"] = static_cast<int64_t>(path);
    return loss;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &logits = saved[0], &target = saved[1];
    const int64_t reduction = context->saved_data["reduction"].toInt();
    const int64_t ignore_index = context->saved_data["ignore_index"].toInt();
    if (c10::GradMode::is_enabled()) {  // the gradient's own gradient is wanted, too: ATen's operations have it
      const at::Tensor loss = at::cross_entropy_loss(logits.to(at::kFloat), target, {}, reduction, ignore_index);
      return {torch::autograd::grad({loss}, {logits}, {gradients[0]}, std::nullopt, true)[0], {}, {}, {}, {}};
    }
    const at::Tensor of_log_p =
        at::nll_loss_backward(gradients[0], saved[2], saved[3], {}, reduction, kPassedOver, saved[5]);
    const auto path = static_cast<CpuPath>(context->saved_data["path"].toInt());
    const LogitRows rows = logit_rows(logits, target, ignore_index);
    const auto *const norms = saved[4].const_data_ptr<float>(), *const from = of_log_p.const_data_ptr<float>();
    at::Tensor result = at::empty_like(logits);
    void* const to = result.mutable_data_ptr();
    at::parallel_for(0, logits.size(0), rows_of_thread(rows.classes), [&](int64_t begin, int64_t end) {
      TRAINRUN_LOOP_OF(path, log_probabilities_back)(rows, begin, end, norms, from, to);
    });
    return {result, {}, {}, {}, {}};
  }
};

/// Under autocast they are read as float32.
bool are_narrow(const at::Tensor& logits) {
  const at::ScalarType type = logits.scalar_type();
  return logits.is_cpu() && (type == at::kBFloat16 || type == at::kHalf) && at::autocast::is_autocast_enabled(at::kCPU);
}

}  // namespace

bool supports_cross_entropy(const at::Tensor& logits, const at::Tensor& target) {
  return is_plain_cpu(logits) && is_plain_cpu(target) && logits.dim() == 2 && target.dim() == 1 &&
         logits.size(0) == target.size(0) && target.scalar_type() == at::kLong && logits.is_contiguous() &&
         target.is_contiguous() && logits.numel() >= kNumbersOfThread &&
         (logits.scalar_type() == at::kFloat || (logits.scalar_type() == at::kBFloat16 && are_narrow(logits)));
}

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& target, int64_t reduction, int64_t ignore_index,
                         CpuPath path) {
  const bool is_narrow = are_narrow(logits), is_supported = supports_cross_entropy(logits, target);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCPU);  // from here on it is off
  if (!is_supported) {
    return at::cross_entropy_loss(is_narrow ? logits.to(at::kFloat) : logits, target, {}, reduction, ignore_index);
  }
  if (c10::GradMode::is_enabled() && logits.requires_grad()) {
    return CrossEntropy::apply(logits, target, reduction, ignore_index, path);
  }
  const Picked picked = pick(logits, target, ignore_index, path);
  return std::get<0>(at::nll_loss_forward(picked.log_p, picked.target, {}, reduction, kPassedOver));
}

}  // namespace trainrun::kernels
