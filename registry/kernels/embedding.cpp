#include "registry/kernels/embedding.h"

#include <ATen/Parallel.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "registry/kernels/own_products.h"
#include "registry/kernels/parts.h"
#include "registry/kernels/plain_tensor.h"
#include "registry/tensors/gradient_places.h"

namespace trainrun::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// sum [V, features] += the rows of grad_y [N, features] at `indices` [N], in their order.
void add_rows(const at::Tensor& sum, const at::Tensor& grad_y, const at::Tensor& indices, int64_t padding_idx) {
  const int64_t count = indices.numel(), features = sum.size(1);
  auto* const to = sum.mutable_data_ptr<float>();
  const auto* const from = grad_y.const_data_ptr<float>();
  const auto* const at = indices.const_data_ptr<int64_t>();
  at::parallel_for(0, features, rows_of_thread(count), [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < count; ++i) {
      if (at[i] == padding_idx) continue;
      float* const row = to + at[i] * features;
      const float* const added = from + i * features;
      for (int64_t j = begin; j < end; ++j) row[j] += added[j];
    }
  });
}

struct EmbeddingRows : torch::autograd::Function<EmbeddingRows> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& table, const at::Tensor& indices,
                            int64_t padding_idx) {
    context->save_for_backward({indices});
    context->saved_data["table"] = table;  // whose numbers the gradient does not read
    context->saved_data["padding_idx"] = padding_idx;
    return at::embedding(table, indices, padding_idx);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor indices = context->get_saved_variables()[0], table = context->saved_data["table"].toTensor();
    const int64_t padding_idx = context->saved_data["padding_idx"].toInt();
    variable_list result(3);
    const at::Tensor sum = is_dense_float(gradients[0]) ? gradient_to_add_to(table) : at::Tensor();
    if (sum.defined()) {
      add_rows(sum, gradients[0], indices.contiguous(), padding_idx);
    } else {
      result[0] = at::embedding_dense_backward(gradients[0], indices, table.size(0), padding_idx, false);
    }
    return result;
  }
};

}  // namespace

at::Tensor embedding(const at::Tensor& table, const at::Tensor& indices, int64_t padding_idx) {
  const bool is_trained = c10::GradMode::is_enabled() && table.requires_grad();
  if (!uses_own_products() || !is_trained || !is_dense_float(table) || !is_plain_cpu(indices) ||
      indices.scalar_type() != at::kLong) {
    return at::embedding(table, indices, padding_idx);
  }
  return EmbeddingRows::apply(table, indices, padding_idx);
}

}  // namespace trainrun::kernels
