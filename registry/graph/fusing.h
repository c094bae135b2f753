#pragma once

#include <set>
#include <vector>

#include "registry/graph/flatten.h"
#include "registry/graph/fusion.h"
#include "registry/graph/plan.h"

namespace trainrun {

/// What fusions must not join.
struct FusionBorders {
  std::vector<LayerRange> ranges;  // layers, with what is within them, of which a fusion takes either all or nothing
  std::set<size_t> bracketed;      // leaves with a bracket of their own, by their index: a fusion takes one at most
};

/// Replaces the steps of layers in which a fusion's pattern is found by one step. A fused step stands where all that it
/// reads is there and nobody has read what it gives. Layers stay as they are where somebody else reads a value that the
/// fusion does not give, where a border runs between them, and where the order of in-place changes or random draws would
/// become another. No step has been fused before.
void fuse(const FlatGraph& flat, const std::vector<Fusion>& fusions, const FusionBorders& borders, Plan& plan);

}  // namespace trainrun
