#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace trainrun {

/// Of bytes, piece after piece: tells damage of a file that keeps them, not malice. It reads several bytes in a
/// nanosecond.
class Checksum {
 public:
  void update(std::string_view bytes) {
    while (bytes.size() >= sizeof(lanes_)) {
      std::array<uint64_t, 4> words{};
      std::memcpy(words.data(), bytes.data(), sizeof(words));
      for (size_t i = 0; i < words.size(); ++i) lanes_[i] = mixed(lanes_[i], words[i]);
      bytes.remove_prefix(sizeof(words));
    }
    std::array<uint64_t, 4> rest{};
    std::memcpy(rest.data(), bytes.data(), bytes.size());
    for (size_t i = 0; i < rest.size(); ++i) lanes_[i] = mixed(lanes_[i], rest[i] ^ bytes.size());
  }
  uint64_t value() const {
    uint64_t value = 0;
    for (const uint64_t lane : lanes_) value = mixed(value, lane);
    return value;
  }

 private:
  static uint64_t mixed(uint64_t state, uint64_t word) {
    constexpr int kTurn = 29;
    return std::rotl((state ^ word) * 0x9E3779B97F4A7C15, kTurn) + 0xD1B54A32D192ED03;
  }
  std::array<uint64_t, 4> lanes_ = {1, 2, 3, 4};
};

inline uint64_t checksum_of(std::string_view bytes) {
  Checksum sum;
  sum.update(bytes);
  return sum.value();
}

}  // namespace trainrun
