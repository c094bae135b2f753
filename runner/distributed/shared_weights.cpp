#include "runner/distributed/shared_weights.h"

#include <cstring>
#include <utility>

#include "registry/tensors/storage.h"

namespace trainrun {
namespace {

constexpr const char* kWeights = "parameters";
constexpr size_t kAlignment = 64;                 // of a unit, in bytes
constexpr size_t kMostMapped = size_t{16} << 20;  // of parameters: more are not kept where they are not needed
constexpr size_t kLargeShard = size_t{8} << 20;   // for which large pages hold little that is not of it

size_t shard_bytes(const ShardedUnit& unit) { return unit.shard.nbytes(); }

size_t whole_bytes(const ShardedUnit& unit, int64_t world_size) {
  const size_t bytes = shard_bytes(unit) * static_cast<size_t>(world_size);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

std::unique_ptr<SharedWeights> SharedWeights::open(ProcessGroup& group,
                                                   const std::vector<std::unique_ptr<ShardedUnit>>& units) {
  std::vector<ShardedUnit*> moved;
  size_t bytes = 0;
  for (const auto& unit : units) {
    if (unit->changes_itself || !unit->shard.is_cpu()) continue;
    moved.push_back(unit.get());
    bytes += whole_bytes(*unit, group.world_size());
  }
  if (moved.empty()) return nullptr;
  std::shared_ptr<SharedSegment> segment = group.map_common(bytes, kWeights);
  if (!segment) return nullptr;
  char* place = segment->data();
  for (ShardedUnit* unit : moved) {
    unit->place = place;
    place += whole_bytes(*unit, group.world_size());
    char* own = unit->place + static_cast<size_t>(group.rank()) * shard_bytes(*unit);
    std::memcpy(own, unit->shard.const_data_ptr(), shard_bytes(*unit));
    use_segment(*unit->shard.storage().unsafeGetStorageImpl(), own, segment);
  }
  group.barrier(kWeights);
  for (const ShardedUnit* unit : moved) {
    char* const end = unit->place + whole_bytes(*unit, group.world_size());
    if (shard_bytes(*unit) >= kLargeShard && group.is_main()) SharedSegment::use_large_pages(unit->place, end);
  }
  if (bytes <= kMostMapped) {
    segment->use_large_pages();
  } else {
    SharedSegment::let_go(segment->data(), place);
  }
  return std::unique_ptr<SharedWeights>(new SharedWeights(group, std::move(segment)));  // NOLINT: a private constructor
}

void SharedWeights::begin_reading() {
  if (std::exchange(is_reading_, true)) return;
  group_.barrier(kWeights);
}

void SharedWeights::end_reading() {
  if (std::exchange(is_reading_, false)) group_.barrier(kWeights);
}

bool SharedWeights::map(ShardedUnit& unit) const {
  if (!is_reading_ || !unit.place) return false;
  use_segment(*unit.whole.storage().unsafeGetStorageImpl(), unit.place, segment_);
  unit.whole.storage().unsafeGetStorageImpl()->set_nbytes(unit.whole.nbytes());
  group_.count_all_gather(unit.shard, kWeights);
  return true;
}

bool SharedWeights::unmap(ShardedUnit& unit) const {
  if (!unit.place || unit.whole.const_data_ptr() != unit.place) return false;
  give_memory_back(unit.whole);
  if (segment_->bytes() <= kMostMapped) return true;
  char* const own = unit.place + static_cast<size_t>(group_.rank()) * shard_bytes(unit);
  SharedSegment::let_go(unit.place, own);
  SharedSegment::let_go(own + shard_bytes(unit), unit.place + whole_bytes(unit, group_.world_size()));
  return true;
}

}  // namespace trainrun
