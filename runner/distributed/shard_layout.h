#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "registry/graph/graph.h"
#include "registry/tensors/named_tensors.h"

namespace trainrun {

/// Parameters that are gathered and sharded as one: where each lies in their flat tensor, and which stretch of it each
/// rank keeps. Numbers are of elements.
struct ShardLayout {
  ShardLayout(const std::vector<int64_t>& sizes, int64_t world_size);

  std::vector<int64_t> offsets;  // of each parameter, aligned to kAlignment
  int64_t shard_size = 0;        // of each rank; the flat tensor has world_size times as many
  static constexpr int64_t kAlignment = 16;

  /// The stretch of a parameter of `size` elements that a rank keeps: where it begins in the parameter, and its length.
  std::pair<int64_t, int64_t> piece(size_t parameter, int64_t size, int64_t rank) const;
};

/// A layer that is gathered as one, and what it holds.
struct ShardUnit {
  std::string name;  // "" for what lies in no wrapped layer
  NamedTensors parameters;
  std::vector<std::string> layers;  // before which it is gathered; one, but for ""
};

/// Cuts a model into units: the layers whose state name a pattern matches in full, without patterns the graph's own
/// layers; parameters that several layers share, and what lies outside, come in a unit of their own. In the graph's
/// order; units without parameters are left out. Throws Error where a pattern matches no layer.
std::vector<ShardUnit> shard_units(const Graph& graph, const std::vector<std::string>& wrap);

}  // namespace trainrun
