#include <zlib.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "registry/formats/files/digest.h"
#include "registry/text_data/token_cache.h"
#include "tests/parity/fuzz_changes.h"

namespace trainrun {

void mend_png(std::string& content) {
  constexpr size_t kHeader = 8, kType = 4, kSum = 4;
  if (!content.starts_with("\x89PNG")) return;
  for (size_t at = kHeader; at + kHeader + kSum <= content.size();) {
    size_t length = 0;
    for (size_t i = 0; i < 4; ++i) length = length << 8 | static_cast<unsigned char>(content[at + i]);
    if (length > content.size() - at - kHeader - kSum) return;
    const auto* bytes = reinterpret_cast<const Bytef*>(content.data() + at + 4);
    const uLong sum = crc32(crc32(0, nullptr, 0), bytes, static_cast<uInt>(length + kType));
    at += kHeader + length;
    for (size_t i = 0; i < kSum; ++i) content[at + i] = static_cast<char>(sum >> (24 - 8 * i));
    at += kSum;
  }
}

void mend_tar(std::string& content) {
  constexpr size_t kBlock = 512, kName = 257, kSum = 148, kSumBytes = 8;
  for (size_t at = 0; at + kBlock <= content.size(); at += kBlock) {
    if (content.compare(at + kName, 5, "ustar") != 0) continue;
    std::fill_n(content.begin() + static_cast<std::ptrdiff_t>(at + kSum), kSumBytes, ' ');
    unsigned sum = 0;
    for (size_t i = 0; i < kBlock; ++i) sum += static_cast<unsigned char>(content[at + i]);
    char text[kSumBytes + 1];
    std::snprintf(text, sizeof text, "%06o", sum);
    content.replace(at + kSum, 7, std::string(text, 7));
  }
}

/// An archive whose sums are all 0 is read unchecked, since torch.save can write one.
void mend_zip(std::string& content) {
  constexpr size_t kSum = 16, kSumBytes = 4;
  constexpr std::string_view kEntry = "PK\x01\x02";
  for (size_t at = content.find(kEntry); at != std::string::npos; at = content.find(kEntry, at + kEntry.size())) {
    if (at + kSum + kSumBytes <= content.size()) content.replace(at + kSum, kSumBytes, kSumBytes, '\0');
  }
}

/// Source: runner/run/checkpoint_state.cpp. The digest stands in the second line, and is of all lines but that one.
void mend_checkpoint_state(std::string& content) {
  constexpr std::string_view kBefore = "{\n  \"digest\": \"";
  constexpr size_t kDigits = 64;
  const size_t body = kBefore.size() + kDigits + 3;  // behind `",` and the end of the line
  if (content.size() <= body || !content.starts_with(kBefore)) return;
  content.replace(kBefore.size(), kDigits, sha256("{\n" + content.substr(body)));
}

void mend_token_cache(std::string& content) {
  constexpr size_t kCount = 88, kSizes = 96, kSum = 160, kHeader = 168;  // places in the header of token_cache.cpp
  if (content.size() < kHeader) return;
  const auto number_at = [&](size_t place) {
    uint64_t number = 0;
    std::memcpy(&number, content.data() + place, sizeof(number));
    return number;
  };
  std::vector<std::string_view> arrays;
  size_t offset = kHeader;
  for (uint64_t i = 0; i < std::min<uint64_t>(number_at(kCount), 8); ++i) {
    const uint64_t size = number_at(kSizes + 8 * i);
    if (offset > content.size() || size > content.size() - offset) return;
    arrays.push_back(std::string_view(content).substr(offset, size));
    offset = (offset + size + 7) / 8 * 8;
  }
  const uint64_t sum = token_checksum(arrays);
  std::memcpy(content.data() + kSum, &sum, sizeof(sum));
}

}  // namespace trainrun
