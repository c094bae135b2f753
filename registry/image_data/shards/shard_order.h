#pragma once

#include <cstdint>
#include <vector>

namespace trainrun {

/// The samples of an epoch, numbered through shards of `sizes` samples, in the order in which they are drawn: the shards
/// in a random order, and their samples through a buffer that is filled with the next `buffer` samples, out of which one
/// is drawn after another, each replaced by the next sample. A sample thus comes at most `buffer` - 1 places before its
/// own. A function of its arguments alone.
std::vector<int64_t> shard_order(const std::vector<int64_t>& sizes, int64_t buffer, uint64_t seed, int64_t epoch);

}  // namespace trainrun
