#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "registry/kinds/padding_mask.h"

namespace trainrun {

/// A field whose samples have different lengths: the items of all, one sample after another.
struct RaggedRows {
  at::Tensor items;             // [sum of the lengths, …]
  std::vector<int64_t> begins;  // [N + 1], of each sample in `items`, and the end; ascending from 0
  double padding = 0;

  int64_t size() const { return static_cast<int64_t>(begins.size()) - 1; }
  int64_t longest() const;
  /// The samples `indices` ([n] int64), filled up to the longest of them, at least 1: [n, L, …].
  at::Tensor padded(const at::Tensor& indices) const;
  /// [n, L] int64: 1 where `padded` has an item of the sample, 0 where it has padding.
  at::Tensor mask(const at::Tensor& indices) const;

 private:
  int64_t longest_of(const at::Tensor& indices) const;
};

/// Sets in `batch` the samples `indices` of each field of `sequences`, and their masks.
void set_sequences(Batch& batch, const std::vector<std::pair<std::string, RaggedRows>>& sequences,
                   const at::Tensor& indices);

}  // namespace trainrun
