#include "registry/kernels/cross_entropy.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_log_softmax_backward_data.h>
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

#include <algorithm>
#include <optional>
#include <tuple>

#include "registry/kernels/plain_tensor.h"

namespace trainrun::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kPassedOver = -100;
constexpr int64_t kFewestNumbers = int64_t{1} << 20;  // with fewer, the caches hold what ATen makes
constexpr int64_t kNumbersAtOnce = int64_t{1} << 17;  // 512 KiB, of which a thread has up to four

/// The logarithms of the probabilities, of some rows at a time, for one thread.
class LogSoftmax {
 public:
  LogSoftmax(const at::Tensor& logits, at::ScalarType dtype, int64_t most_rows)
      : logits_(logits), log_p_(at::empty({most_rows, logits.size(1)}, logits.options().dtype(dtype))) {
    if (logits.scalar_type() != dtype) converted_ = at::empty_like(log_p_);
  }

  at::Tensor operator()(int64_t first, int64_t count) const {
    at::Tensor rows = logits_.narrow(0, first, count);
    if (converted_.defined()) rows = converted_.narrow(0, 0, count).copy_(rows);
    at::Tensor log_p = log_p_.narrow(0, 0, count);
    at::_log_softmax_out(log_p, rows, 1, /*half_to_float=*/false);
    return log_p;
  }

 private:
  at::Tensor logits_, log_p_, converted_;
};

/// Calls work(log_softmax, first, count) for some rows at a time, on ATen's threads, without autograd and autocast. Each
/// thread has a `work` of its own, made by begin_thread(most rows at a time).
template <class Begin>
void for_rows(const at::Tensor& logits, at::ScalarType dtype, const Begin& begin_thread) {
  const int64_t at_once = std::clamp<int64_t>(kNumbersAtOnce / logits.size(1), 1, logits.size(0));
  at::parallel_for(0, logits.size(0), at_once, [&](int64_t begin, int64_t end) {
    const at::AutoDispatchBelowADInplaceOrView no_autograd;
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCPU);
    const LogSoftmax log_softmax(logits, dtype, at_once);
    const auto work = begin_thread(at_once);
    for (int64_t first = begin; first < end; first += at_once) work(log_softmax, first, std::min(at_once, end - first));
  });
}

bool none_counts(const int64_t* counted, int64_t count) {
  return std::all_of(counted, counted + count, [](int64_t target) { return target == kPassedOver; });
}

/// The loss needs one number of each row, and is ATen's own of a single class: its sums are in the same order.
struct Picked {
  at::Tensor log_p;   // [R, 1]: of the targets
  at::Tensor target;  // [R]: 0, the only class, or kPassedOver
};

Picked pick(const at::Tensor& logits, const at::Tensor& target, int64_t ignore_index, at::ScalarType dtype) {
  const int64_t num_classes = logits.size(1);
  Picked picked{at::zeros({logits.size(0), 1}, logits.options().dtype(dtype)), at::empty_like(target)};
  const int64_t* const wanted = target.const_data_ptr<int64_t>();
  int64_t* const counted = picked.target.mutable_data_ptr<int64_t>();
  for (int64_t row = 0; row < target.numel(); ++row) {
    counted[row] = wanted[row] == ignore_index ? kPassedOver : 0;
    TORCH_CHECK_INDEX(counted[row] != 0 || (wanted[row] >= 0 && wanted[row] < num_classes), "Target ", wanted[row],
                      " is out of bounds.");
  }
  AT_DISPATCH_FLOATING_TYPES(dtype, "cross_entropy", [&] {
    auto* const to = picked.log_p.mutable_data_ptr<scalar_t>();
    const auto work = [&](const LogSoftmax& log_softmax, int64_t first, int64_t count) {
      if (none_counts(counted + first, count)) return;
      const at::Tensor log_p = log_softmax(first, count);
      const auto* const from = log_p.const_data_ptr<scalar_t>();
      for (int64_t row = first; row < first + count; ++row) {
        if (counted[row] == 0) to[row] = from[(row - first) * num_classes + wanted[row]];
      }
    };
    for_rows(logits, dtype, [&](int64_t) { return work; });
  });
  return picked;
}

/// The gradient of the logits, from that of `picked.log_p` [R, 1].
at::Tensor gradient_of_logits(const at::Tensor& of_picked, const at::Tensor& counted, const at::Tensor& logits,
                              const at::Tensor& target) {
  const int64_t num_classes = logits.size(1);
  const at::ScalarType dtype = of_picked.scalar_type();
  at::Tensor result = at::empty_like(logits);
  const int64_t* const wanted = target.const_data_ptr<int64_t>();
  const int64_t* const counts = counted.const_data_ptr<int64_t>();
  AT_DISPATCH_FLOATING_TYPES(dtype, "cross_entropy", [&] {
    const auto* const from = of_picked.const_data_ptr<scalar_t>();
    for_rows(logits, dtype, [&](int64_t at_once) {
      const at::Tensor sparse = at::zeros({at_once, num_classes}, of_picked.options());
      const at::Tensor wide = result.scalar_type() == dtype ? at::Tensor() : at::empty_like(sparse);
      return [&, sparse, wide](const LogSoftmax& log_softmax, int64_t first, int64_t count) {
        at::Tensor rows = result.narrow(0, first, count);
        if (none_counts(counts + first, count)) {
          rows.zero_();
          return;
        }
        auto* const spot = sparse.mutable_data_ptr<scalar_t>();
        const auto set = [&](bool whether) {
          for (int64_t i = 0; i < count; ++i) {
            if (counts[first + i] == 0) spot[i * num_classes + wanted[first + i]] = whether ? from[first + i] : 0;
          }
        };
        set(true);
        at::Tensor to = wide.defined() ? wide.narrow(0, 0, count) : rows;
        at::_log_softmax_backward_data_out(to, sparse.narrow(0, 0, count), log_softmax(first, count), 1, dtype);
        if (wide.defined()) rows.copy_(to);
        set(false);
      };
    });
  });
  return result;
}

struct CrossEntropy : torch::autograd::Function<CrossEntropy> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& logits, const at::Tensor& target,
                            int64_t reduction, int64_t ignore_index, at::ScalarType dtype) {
    const Picked picked = pick(logits, target, ignore_index, dtype);
    const auto [loss, total_weight] = at::nll_loss_forward(picked.log_p, picked.target, {}, reduction, kPassedOver);
    context->save_for_backward({logits, target, picked.log_p, picked.target, total_weight});
    context->saved_data["reduction"] = reduction;
    context->saved_data["ignore_index"] = ignore_index;
    return loss;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &logits = saved[0], &target = saved[1];
    const int64_t reduction = context->saved_data["reduction"].toInt();
    if (c10::GradMode::is_enabled()) {  // the gradient's own gradient is wanted, too: ATen's operations have it
      const at::Tensor loss = at::cross_entropy_loss(logits.to(saved[2].scalar_type()), target, {}, reduction,
                                                     context->saved_data["ignore_index"].toInt());
      return {torch::autograd::grad({loss}, {logits}, {gradients[0]}, std::nullopt, true)[0], {}, {}, {}, {}};
    }
    const at::Tensor of_picked =
        at::nll_loss_backward(gradients[0], saved[2], saved[3], {}, reduction, kPassedOver, saved[4]);
    return {gradient_of_logits(of_picked, saved[3], logits, target), {}, {}, {}, {}};
  }
};

/// The type that the loss is computed in: autocast has float32 in the place of narrower ones.
std::optional<at::ScalarType> computed_in(at::ScalarType logits) {
  if (logits == at::kFloat || logits == at::kDouble) return logits;
  const bool is_narrow = logits == at::kBFloat16 || logits == at::kHalf;
  if (is_narrow && at::autocast::is_autocast_enabled(at::kCPU)) return at::kFloat;
  return std::nullopt;
}

}  // namespace

bool supports_cross_entropy(const at::Tensor& logits, const at::Tensor& target) {
  return is_plain_cpu(logits) && is_plain_cpu(target) && logits.dim() == 2 && target.dim() == 1 &&
         logits.size(0) == target.size(0) && target.scalar_type() == at::kLong && logits.is_contiguous() &&
         target.is_contiguous() && logits.numel() >= kFewestNumbers && computed_in(logits.scalar_type());
}

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& target, int64_t reduction, int64_t ignore_index) {
  if (!supports_cross_entropy(logits, target)) {
    return at::cross_entropy_loss(logits, target, {}, reduction, ignore_index);
  }
  const at::ScalarType dtype = *computed_in(logits.scalar_type());
  if (c10::GradMode::is_enabled() && logits.requires_grad()) {
    return CrossEntropy::apply(logits, target, reduction, ignore_index, dtype);
  }
  const Picked picked = pick(logits, target, ignore_index, dtype);
  return std::get<0>(at::nll_loss_forward(picked.log_p, picked.target, {}, reduction, kPassedOver));
}

}  // namespace trainrun::kernels
