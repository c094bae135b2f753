#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "registry/kernels/attention_terms.h"
#include "registry/kernels/cpu_path.h"
#include "registry/kernels/short_attention_simd.h"

// What the forms of attention of short_attention.h and ragged_attention.h have in common.

namespace trainrun::kernels {

/// The type that the tensors are computed from: null where it is none of ours.
std::optional<at::ScalarType> stored_type(const at::Tensor& query);

/// Where the rows of a tensor [N, heads, T, D] lie whose features are side by side; of an undefined one nowhere.
AttentionRows rows_of(const at::Tensor& heads);

/// The mask as numbers that are added, each query's side by side; of size 1 where it is the same for all.
at::Tensor added_mask(const at::Tensor& mask, int64_t keys);

/// `sizes`: all but what the terms say.
AttentionShape with_terms(AttentionShape sizes, const AttentionTerms& terms);

/// Calls pass(begin, end, scratch) for parts of [0, number), on ATen's threads, each with scratch memory of its own.
void on_threads(int64_t number, int64_t scratch,
                const std::function<void(int64_t begin, int64_t end, float* scratch)>& pass);

/// The loops of short_attention_simd.h for an attention.
struct AttentionLoops {
  decltype(&generic::attention_scratch) scratch;
  decltype(&generic::attention_forward) forward, backward;
};
/// Those of a path; where it allows, and the tensors are bfloat16, those by products of bfloat16.
AttentionLoops attention_loops(const AttentionShape& shape, CpuPath path);

/// One attention: its sizes, and what both passes read.
struct Attention {
  AttentionShape shape;
  AttentionRows query, key, value;
  at::Tensor mask;  // as `added_mask` gives it
  at::Tensor kept;  // [N, heads, L, S] bytes: 1 where a dropout keeps a weight
  CpuPath path;

  /// `normalization`: [N, heads, L, 2]; may be undefined in a forward pass.
  AttentionTensors forward_tensors(const AttentionRows& y, const at::Tensor& normalization) const;
  AttentionTensors backward_tensors(const std::array<AttentionRows, 3>& gradients, const at::Tensor& normalization,
                                    const AttentionRows& grad_y) const;
  void forward(const AttentionRows& y, const at::Tensor& normalization) const;
  /// Writes the gradients of the queries, keys and values.
  void backward(const std::array<AttentionRows, 3>& gradients, const at::Tensor& normalization,
                const AttentionRows& grad_y) const;

 private:
  AttentionTensors tensors(const at::Tensor& normalization) const;
};

/// Queries, keys and values as tensors [N, heads, T, D].
struct Heads {
  at::Tensor query, key, value;
};

/// The gradients of `inputs` by ATen's operations, which have derivatives themselves.
std::vector<at::Tensor> derivable_gradients(const Attention& attention, const Heads& of,
                                            const std::vector<at::Tensor>& inputs, const at::Tensor& grad_y);

}  // namespace trainrun::kernels
