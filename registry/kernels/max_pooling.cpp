#include "registry/kernels/max_pooling.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/native/Pool.h>
#include <ATen/ops/empty.h>

#include <algorithm>

namespace trainrun::kernels {
namespace {

int64_t output_size(const MaxPoolWindow& window, size_t dim, int64_t size) {
  return at::native::pooling_output_shape<int64_t>(size, window.kernel_size[dim], window.padding[dim],
                                                   window.stride[dim], window.dilation[dim], window.ceil_mode);
}

PoolGeometry geometry_of(const at::Tensor& x, const MaxPoolWindow& window) {
  const bool channels_last = x.suggest_memory_format() == at::MemoryFormat::ChannelsLast;
  const int64_t batch = x.dim() == 4 ? x.size(0) : 1, channels = x.size(-3);
  PoolGeometry g{};
  g.images = channels_last ? batch : batch * channels;
  g.channels = channels_last ? channels : 1;
  g.height = x.size(-2), g.width = x.size(-1);
  g.kernel_height = window.kernel_size[0], g.kernel_width = window.kernel_size[1];
  g.stride_height = window.stride[0], g.stride_width = window.stride[1];
  g.padding_height = window.padding[0], g.padding_width = window.padding[1];
  g.dilation_height = window.dilation[0], g.dilation_width = window.dilation[1];
  g.out_height = output_size(window, 0, g.height), g.out_width = output_size(window, 1, g.width);
  return g;
}

/// Calls loop(begin, end) for parts of the images, on ATen's threads: enough work in each part to be worth a thread.
template <class Loop>
void over_images(const PoolGeometry& g, const Loop& loop) {
  constexpr int64_t kValuesPerPart = 32768;
  const int64_t grain = std::max<int64_t>(1, kValuesPerPart / (g.height * g.width * g.channels));
  at::parallel_for(0, g.images, grain, loop);
}

/// Calls call(T{}) with the type of `dtype`.
template <class Call>
void with_type(at::ScalarType dtype, const Call& call) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, dtype, "relu_max_pool2d", [&] { call(scalar_t{}); });
}

}  // namespace

bool is_halving_pool(const at::Tensor& x, const MaxPoolWindow& window) {
  const auto type = x.scalar_type();
  if (!x.is_contiguous() || (type != at::kFloat && type != at::kBFloat16)) return false;
  for (const size_t dim : {0, 1}) {
    const int64_t size = x.size(static_cast<int64_t>(dim) - 2);
    const bool halves = window.kernel_size[dim] == 2 && window.stride[dim] == 2 && window.padding[dim] == 0 &&
                        window.dilation[dim] == 1 && 2 * output_size(window, dim, size) <= size;
    if (!halves) return false;
  }
  return true;
}

MaxPooling::MaxPooling(const at::Tensor& x, const MaxPoolWindow& window, bool has_relu, CpuPath path)
    : pool_{geometry_of(x, window), x.scalar_type() == at::kBFloat16, has_relu},
      x_shape_(x.sizes().vec()),
      y_shape_(x_shape_),
      format_(x.suggest_memory_format()),
      is_halving_(is_halving_pool(x, window)),
      path_(path) {
  const PoolGeometry& g = geometry();
  at::native::pool2d_shape_check(x, g.kernel_height, g.kernel_width, g.stride_height, g.stride_width, g.padding_height,
                                 g.padding_width, g.dilation_height, g.dilation_width, x.size(-3), g.height, g.width,
                                 g.out_height, g.out_width, format_);
  y_shape_[y_shape_.size() - 2] = g.out_height;
  y_shape_[y_shape_.size() - 1] = g.out_width;
}

at::Tensor MaxPooling::empty(const std::vector<int64_t>& shape, const at::TensorOptions& options) const {
  return at::empty(shape, options.memory_format(format_));
}

std::pair<at::Tensor, at::Tensor> MaxPooling::forward(const at::Tensor& x, bool with_winners) const {
  const at::Tensor y = empty(y_shape_, x.options());
  const at::Tensor winners = with_winners ? empty(y_shape_, x.options().dtype(at::kByte)) : at::Tensor();
  uint8_t* const to = with_winners ? winners.mutable_data_ptr<uint8_t>() : nullptr;
  if (is_halving_) {
    over_images(geometry(), [&](int64_t begin, int64_t end) {
      TRAINRUN_LOOP_OF(path_, max_pool_2x2_forward)
      (pool_, x.const_data_ptr(), y.mutable_data_ptr(), to, begin, end);
    });
    return {y, winners};
  }
  with_type(x.scalar_type(), [&]<class T>(T) {
    const T* const from = x.const_data_ptr<T>();
    T* const out = y.mutable_data_ptr<T>();
    over_images(geometry(),
                [&](int64_t begin, int64_t end) { relu_max_pool_forward(geometry(), from, out, to, begin, end); });
  });
  return {y, winners};
}

at::Tensor MaxPooling::backward(const at::Tensor& grad_y, const at::Tensor& winners) const {
  const at::Tensor gradient = grad_y.contiguous(format_);
  const at::Tensor grad_x = empty(x_shape_, grad_y.options());
  const uint8_t* const won = winners.const_data_ptr<uint8_t>();
  if (is_halving_) {
    over_images(geometry(), [&](int64_t begin, int64_t end) {
      TRAINRUN_LOOP_OF(path_, max_pool_2x2_backward)
      (pool_, gradient.const_data_ptr(), won, grad_x.mutable_data_ptr(), begin, end);
    });
    return grad_x;
  }
  with_type(grad_y.scalar_type(), [&]<class T>(T) {
    const T* const from = gradient.const_data_ptr<T>();
    T* const out = grad_x.mutable_data_ptr<T>();
    over_images(geometry(),
                [&](int64_t begin, int64_t end) { relu_max_pool_backward(geometry(), from, won, out, begin, end); });
  });
  return grad_x;
}

at::Tensor MaxPooling::gather(const at::Tensor& of_x, const at::Tensor& winners) const {
  const at::Tensor input = of_x.contiguous(format_);
  const at::Tensor of_y = empty(y_shape_, of_x.options());
  const uint8_t* const won = winners.const_data_ptr<uint8_t>();
  with_type(of_x.scalar_type(), [&]<class T>(T) {
    const T* const from = input.const_data_ptr<T>();
    T* const out = of_y.mutable_data_ptr<T>();
    over_images(geometry(),
                [&](int64_t begin, int64_t end) { relu_max_pool_gather(geometry(), from, won, out, begin, end); });
  });
  return of_y;
}

}  // namespace trainrun::kernels
