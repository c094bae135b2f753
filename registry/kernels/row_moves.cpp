#include "registry/kernels/row_moves.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstring>
#include <vector>

#include "registry/kernels/parts.h"
#include "registry/kernels/plain_tensor.h"

namespace trainrun::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// [num_rows, …] with the rest of x's sizes.
std::vector<int64_t> sizes_with(const at::Tensor& x, int64_t num_rows) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes[0] = num_rows;
  return sizes;
}

/// Calls move(i, number of the row, bytes of one) for each of `rows`.
template <class Move>
void move_rows(const at::Tensor& x, const at::Tensor& rows, const Move& move) {
  if (x.numel() == 0) return;
  const int64_t features = x.numel() / x.size(0);
  const auto bytes = static_cast<size_t>(features * x.element_size());
  const auto* const numbers = rows.const_data_ptr<int64_t>();
  at::parallel_for(0, rows.numel(), rows_of_thread(features), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) move(static_cast<size_t>(i), static_cast<size_t>(numbers[i]), bytes);
  });
}

at::Tensor copied_from(const at::Tensor& x, const at::Tensor& rows) {
  if (!is_plain_cpu(x)) return at::index_select(x, 0, rows);
  const at::Tensor from = x.contiguous();
  at::Tensor taken = at::empty(sizes_with(x, rows.numel()), x.options());
  const auto* const source = static_cast<const char*>(from.const_data_ptr());
  auto* const target = static_cast<char*>(taken.mutable_data_ptr());
  move_rows(from, rows,
            [&](size_t i, size_t row, size_t bytes) { std::memcpy(target + i * bytes, source + row * bytes, bytes); });
  return taken;
}

at::Tensor copied_to(const at::Tensor& x, const at::Tensor& rows, int64_t num_rows) {
  at::Tensor whole = at::zeros(sizes_with(x, num_rows), x.options());
  if (!is_plain_cpu(x)) return whole.index_copy_(0, rows, x);
  const at::Tensor from = x.contiguous();
  const auto* const source = static_cast<const char*>(from.const_data_ptr());
  auto* const target = static_cast<char*>(whole.mutable_data_ptr());
  move_rows(from, rows,
            [&](size_t i, size_t row, size_t bytes) { std::memcpy(target + row * bytes, source + i * bytes, bytes); });
  return whole;
}

bool has_gradient(const at::Tensor& x) { return c10::GradMode::is_enabled() && x.requires_grad(); }

struct TakenRows : torch::autograd::Function<TakenRows> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& rows) {
    context->save_for_backward({rows});
    context->saved_data["num_rows"] = x.size(0);
    return copied_from(x, rows);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {put_rows(gradients[0], context->get_saved_variables()[0], context->saved_data["num_rows"].toInt()), {}};
  }
};

struct PutRows : torch::autograd::Function<PutRows> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& rows, int64_t num_rows) {
    context->save_for_backward({rows});
    return copied_to(x, rows, num_rows);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {taken_rows(gradients[0], context->get_saved_variables()[0]), {}, {}};
  }
};

}  // namespace

at::Tensor taken_rows(const at::Tensor& x, const at::Tensor& rows) {
  if (rows.numel() == x.size(0)) return x;
  return has_gradient(x) ? TakenRows::apply(x, rows) : copied_from(x, rows);
}

at::Tensor put_rows(const at::Tensor& x, const at::Tensor& rows, int64_t num_rows) {
  if (x.size(0) == num_rows) return x;
  return has_gradient(x) ? PutRows::apply(x, rows, num_rows) : copied_to(x, rows, num_rows);
}

at::Tensor taken_positions(const at::Tensor& x, const at::Tensor& rows) {
  return taken_rows(x.contiguous().flatten(0, 1), rows);
}

at::Tensor put_positions(const at::Tensor& x, const at::Tensor& rows, const at::Tensor& sizes) {
  const int64_t texts = sizes.size(0), length = sizes.size(1);
  return put_rows(x.flatten(0, 1), rows, texts * length).unflatten(0, {texts, length});
}

}  // namespace trainrun::kernels
