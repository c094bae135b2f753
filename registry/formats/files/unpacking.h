#pragma once

#include <cstdint>

namespace trainrun {

// What bounds a compressed file: deflate makes up to 1032 bytes of one, so that some megabytes may fill any memory. Data
// that are worth training on hardly come to a tenth of this ratio.
constexpr uint64_t kAlwaysUnpacked = uint64_t{256} << 20;  // bytes that need no ratio
constexpr uint64_t kMostTimesUnpacked = 200;

/// Whether what unpacks to (at least) `unpacked` bytes out of `packed` ones is not data, but made to fill the memory.
constexpr bool is_bomb(uint64_t packed, uint64_t unpacked) {
  return unpacked > kAlwaysUnpacked && unpacked / kMostTimesUnpacked > packed;
}

}  // namespace trainrun
