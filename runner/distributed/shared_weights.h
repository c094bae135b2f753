#pragma once

#include <memory>
#include <vector>

#include "runner/distributed/process_group.h"
#include "runner/distributed/sharded_unit.h"
#include "runner/distributed/shared_segment.h"

namespace trainrun {

/// A sharded model's parameters where its ranks share a machine: once for all, in memory that they map, each unit's in one
/// piece. A rank's shard is its part of them, so that whoever gathers a unit copies nothing.
///
/// Between `begin_reading` and `end_reading`, which wait for all ranks, nobody changes a parameter and everybody may read
/// them all; otherwise each rank changes its own shards, and must not look at the others'.
class SharedWeights {
 public:
  /// Moves the units' shards there; all ranks call it. Null where the ranks have no memory in common. Units whose layers
  /// change their own parameters stay where they are.
  static std::unique_ptr<SharedWeights> open(ProcessGroup& group,
                                             const std::vector<std::unique_ptr<ShardedUnit>>& units);

  void begin_reading();
  void end_reading();

  /// Whether a unit's `whole` can be had here now; if so, it has got its memory.
  bool map(ShardedUnit& unit) const;
  /// Whether `whole` was here; if so, it has no memory any more, and this process none of the other ranks' part of it.
  bool unmap(ShardedUnit& unit) const;

 private:
  SharedWeights(ProcessGroup& group, std::shared_ptr<SharedSegment> segment)
      : group_(group), segment_(std::move(segment)) {}

  ProcessGroup& group_;
  std::shared_ptr<SharedSegment> segment_;
  bool is_reading_ = false;
};

}  // namespace trainrun
