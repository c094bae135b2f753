#include "registry/kernels/max_pool.h"

#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/relu.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "registry/kernels/max_pool_loops.h"
#include "registry/kernels/max_pooling.h"
#include "registry/kernels/plain_tensor.h"
#include "registry/language/error.h"

namespace trainrun::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

void keep(AutogradContext* context, const at::Tensor& winners, const MaxPoolingPtr& pooling) {
  context->save_for_backward({winners});
  context->saved_data["pooling"] = c10::IValue::make_capsule(pooling);
}

MaxPoolingPtr kept_pooling(const AutogradContext* context) {
  return c10::static_intrusive_pointer_cast<MaxPooling>(context->saved_data.at("pooling").toCapsule());
}

// The pooling is linear in what it hands on: each of the two is the other's derivative, so that there are derivatives
// of any order.
struct GatherFromWinners;

/// From gradients of the output to gradients of x.
struct SpreadToWinners : torch::autograd::Function<SpreadToWinners> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& grad_y, const at::Tensor& winners,
                            const MaxPoolingPtr& pooling) {
    keep(context, winners, pooling);
    return pooling->backward(grad_y, winners);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients);
};

struct GatherFromWinners : torch::autograd::Function<GatherFromWinners> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& of_x, const at::Tensor& winners,
                            const MaxPoolingPtr& pooling) {
    keep(context, winners, pooling);
    return pooling->gather(of_x, winners);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor winners = context->get_saved_variables()[0];
    return {SpreadToWinners::apply(gradients[0], winners, kept_pooling(context)), {}, {}};
  }
};

variable_list SpreadToWinners::backward(AutogradContext* context, const variable_list& gradients) {
  const at::Tensor winners = context->get_saved_variables()[0];
  return {GatherFromWinners::apply(gradients[0], winners, kept_pooling(context)), {}, {}};
}

struct OwnMaxPool : torch::autograd::Function<OwnMaxPool> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const MaxPoolingPtr& pooling) {
    const auto [y, winners] = pooling->forward(x, true);
    keep(context, winners, pooling);
    return y;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor winners = context->get_saved_variables()[0];
    return {SpreadToWinners::apply(gradients[0], winners, kept_pooling(context)), {}};
  }
};

/// Whether every window has a point within x. Where padding is wider than a dilated image, ATen pools nothing into
/// -inf.
bool windows_meet(const at::Tensor& x, const MaxPoolWindow& window) {
  for (const size_t dim : {0, 1}) {
    if (window.padding[dim] > 0 && window.dilation[dim] > x.size(static_cast<int64_t>(dim) - 2)) return false;
  }
  return true;
}

/// ATen's loops for channels_last are vectorised: where windows overlap, they are the quicker ones.
bool pays_in_channels_last(const at::Tensor& x, const MaxPoolWindow& window) {
  return x.suggest_memory_format() == at::MemoryFormat::ChannelsLast &&
         x.is_contiguous(at::MemoryFormat::ChannelsLast) && window.kernel_size[0] <= window.stride[0] &&
         window.kernel_size[1] <= window.stride[1];
}

at::Tensor aten_max_pool2d(const at::Tensor& x, const MaxPoolWindow& window) {
  return at::max_pool2d(x, window.kernel_size, window.stride, window.padding, window.dilation, window.ceil_mode);
}

at::Tensor pooled(const at::Tensor& x, const MaxPoolWindow& window, bool has_relu, std::optional<CpuPath> path) {
  const auto pooling = c10::make_intrusive<MaxPooling>(x, window, has_relu, path.value_or(best_cpu_path()));
  if (!c10::GradMode::is_enabled() || !x.requires_grad()) return pooling->forward(x, false).first;
  return OwnMaxPool::apply(x, pooling);
}

}  // namespace

bool can_fuse_relu_max_pool2d(const MaxPoolWindow& window, at::ScalarType dtype) {
  const auto [height, width] = window.kernel_size;
  const bool fits = height > 0 && width > 0 && height <= kNoWinner && width <= kNoWinner && height * width <= kNoWinner;
  return fits && (dtype == at::kFloat || dtype == at::kDouble || dtype == at::kBFloat16 || dtype == at::kHalf);
}

bool supports_relu_max_pool2d(const at::Tensor& x, const MaxPoolWindow& window) {
  return can_fuse_relu_max_pool2d(window, x.scalar_type()) && is_plain_cpu(x) && (x.dim() == 3 || x.dim() == 4) &&
         (x.is_contiguous() || pays_in_channels_last(x, window)) && windows_meet(x, window);
}

bool supports_max_pool2d(const at::Tensor& x, const MaxPoolWindow& window) {
  return is_plain_cpu(x) && (x.dim() == 3 || x.dim() == 4) && is_halving_pool(x, window);
}

at::Tensor relu_max_pool2d(const at::Tensor& x, const MaxPoolWindow& window, std::optional<CpuPath> path) {
  if (path && !is_available(*path)) throw Error("relu_max_pool2d: this processor has no " + name_of(*path));
  if (!supports_relu_max_pool2d(x, window)) return aten_max_pool2d(at::relu(x), window);
  return pooled(x, window, true, path);
}

at::Tensor max_pool2d(const at::Tensor& x, const MaxPoolWindow& window, std::optional<CpuPath> path) {
  if (path && !is_available(*path)) throw Error("max_pool2d: this processor has no " + name_of(*path));
  return supports_max_pool2d(x, window) ? pooled(x, window, false, path) : aten_max_pool2d(x, window);
}

}  // namespace trainrun::kernels
