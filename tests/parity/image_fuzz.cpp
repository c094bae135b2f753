#include "tests/parity/image_fuzz.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <stdexcept>

#include "registry/datasets/shard_index.h"
#include "registry/error.h"
#include "registry/images/decode.h"

namespace trainrun {

namespace {

size_t place_in(const std::string& text, RandomStream& random) {
  return text.empty() ? 0 : static_cast<size_t>(random.integer(static_cast<int64_t>(text.size())));
}

/// A number that headers find hard, in either order of bytes.
std::string hard_number(RandomStream& random) {
  constexpr std::array<uint32_t, 8> kHard = {0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF};
  const uint32_t number = kHard[static_cast<size_t>(random.integer(kHard.size()))];
  std::string bytes;
  for (unsigned shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(number >> shift);
  if (random.integer(2) == 0) std::reverse(bytes.begin(), bytes.end());
  return bytes.substr(0, size_t{1} << random.integer(3));
}

/// Makes the sums of a PNG's chunks right, so that what was changed gets past them.
void mend_png(std::string& file) {
  constexpr size_t kHeader = 8, kType = 4, kSum = 4;
  for (size_t at = kHeader; at + kHeader + kSum <= file.size();) {
    size_t length = 0;
    for (size_t i = 0; i < 4; ++i) length = length << 8 | static_cast<unsigned char>(file[at + i]);
    if (length > file.size() - at - kHeader - kSum) return;
    const auto* bytes = reinterpret_cast<const Bytef*>(file.data() + at + 4);
    const uLong sum = crc32(crc32(0, nullptr, 0), bytes, static_cast<uInt>(length + kType));
    at += kHeader + length;
    for (size_t i = 0; i < kSum; ++i) file[at + i] = static_cast<char>(sum >> (24 - 8 * i));
    at += kSum;
  }
}

/// Makes the sums of a tar archive's headers right, as far as they can be found.
void mend_tar(std::string& file) {
  constexpr size_t kBlock = 512, kName = 257, kSum = 148, kSumBytes = 8;
  for (size_t at = 0; at + kBlock <= file.size(); at += kBlock) {
    if (file.compare(at + kName, 5, "ustar") != 0) continue;
    std::fill_n(file.begin() + static_cast<std::ptrdiff_t>(at + kSum), kSumBytes, ' ');
    unsigned sum = 0;
    for (size_t i = 0; i < kBlock; ++i) sum += static_cast<unsigned char>(file[at + i]);
    char text[kSumBytes + 1];
    std::snprintf(text, sizeof text, "%06o", sum);
    file.replace(at + kSum, 7, std::string(text, 7));
  }
}

}  // namespace

void change_file(std::string& file, const std::string& other, RandomStream& random) {
  const size_t at = place_in(file, random);
  const auto length = static_cast<size_t>(1 + random.integer(40));
  switch (random.integer(6)) {
    case 0:
      if (!file.empty()) file[at] = static_cast<char>(file[at] ^ (1 << random.integer(8)));
      return;
    case 1:
      file.replace(at, 4, hard_number(random));
      return;
    case 2:
      file.erase(at, length);
      return;
    case 3:
      file.insert(at, file.substr(at, length));
      return;
    case 4:
      file.replace(at, length, other.substr(place_in(other, random), length));
      return;
    default:
      if (random.integer(8) == 0) file.resize(at);  // else most files would be cut off
  }
}

FuzzResult fuzz_shards(const std::vector<std::string>& contents, int64_t rounds, uint64_t seed) {
  FuzzResult result;
  RandomStream random(seed);
  const auto any = [&] { return contents[static_cast<size_t>(random.integer(static_cast<int64_t>(contents.size())))]; };
  for (int64_t round = 0; round < rounds; ++round) {
    std::string file = any();
    const std::string other = any();
    for (int64_t i = 1 + random.integer(4); i > 0; --i) change_file(file, other, random);
    if (random.integer(4) > 0) mend_tar(file);
    ShardNames names;
    if (random.integer(2) == 0) names.label = "json.label";
    try {
      for (const ShardSample& sample : read_shard(tar_in_memory("shard", file), names)) {
        if (sample.offset > file.size() || sample.size > file.size() - sample.offset || sample.label < 0) {
          throw std::logic_error(sample.name + " is not within its shard");
        }
      }
      ++result.decoded;
    } catch (const DataError&) {
      ++result.refused;
    }
  }
  return result;
}

FuzzResult fuzz_images(const std::vector<std::string>& contents, int64_t rounds, uint64_t seed) {
  FuzzResult result;
  RandomStream random(seed);
  const auto any = [&] { return contents[static_cast<size_t>(random.integer(static_cast<int64_t>(contents.size())))]; };
  for (int64_t round = 0; round < rounds; ++round) {
    std::string file = any();
    const std::string other = any();
    for (int64_t i = 1 + random.integer(4); i > 0; --i) change_file(file, other, random);
    if (file.starts_with("\x89PNG") && random.integer(4) > 0) mend_png(file);
    const int64_t how = random.integer(3);
    try {
      if (how == 2) {
        decode_mask(file);
      } else {
        decode_image(file, how == 0 ? 1 : 3);
      }
      ++result.decoded;
    } catch (const DataError&) {
      ++result.refused;
    }
  }
  return result;
}

}  // namespace trainrun
