#include "registry/image_data/shards/shard_order.h"

#include <cstddef>
#include <numeric>
#include <utility>

#include "registry/kinds/sample_draws.h"

namespace trainrun {
namespace {

constexpr int64_t kOfShards = -2;  // the place, before all transforms and data sets, of these draws

}  // namespace

std::vector<int64_t> shard_order(const std::vector<int64_t>& sizes, int64_t buffer, uint64_t seed, int64_t epoch) {
  const SampleDraws draws(DrawKey{seed, epoch, kOfShards}, {0, 1});
  std::vector<int64_t> starts(sizes.size());
  std::exclusive_scan(sizes.begin(), sizes.end(), starts.begin(), int64_t{0});
  std::vector<size_t> shards(sizes.size());
  std::iota(shards.begin(), shards.end(), size_t{0});
  RandomStream of_shards = draws.of(0);
  for (size_t i = shards.size(); i > 1; --i) {
    std::swap(shards[i - 1], shards[static_cast<size_t>(of_shards.integer(static_cast<int64_t>(i)))]);
  }
  std::vector<int64_t> order;
  std::vector<int64_t> held;
  RandomStream of_buffer = draws.of(1);
  const auto draw = [&] {
    int64_t& drawn = held[static_cast<size_t>(of_buffer.integer(static_cast<int64_t>(held.size())))];
    order.push_back(drawn);
    return &drawn;
  };
  for (const size_t shard : shards) {
    for (int64_t sample = starts[shard]; sample < starts[shard] + sizes[shard]; ++sample) {
      if (static_cast<int64_t>(held.size()) < buffer) {
        held.push_back(sample);
      } else {
        *draw() = sample;
      }
    }
  }
  while (!held.empty()) {
    *draw() = held.back();
    held.pop_back();
  }
  return order;
}

}  // namespace trainrun
