#pragma once

#include <optional>

#include "registry/kinds/loss.h"

namespace trainrun {

/// The whole numbers that something may read as indices: `least` to `below` - 1, and `ignored`.
struct IndexRange {
  int64_t least = 0;
  int64_t below = 0;
  std::optional<int64_t> ignored = std::nullopt;
};

/// What the second input of a loss may hold if it is class indices for the first, `output` ([N, C, …], or with its
/// classes in `class_dim`) and `target`; empty if the loss reads no class indices.
std::optional<IndexRange> class_range(const Component<LossKind>& loss, const at::Tensor& output,
                                      const at::Tensor& target);

}  // namespace trainrun
