#include "registry/text_data/token_cache.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>

#include "registry/data/data_cache.h"
#include "registry/formats/files/checksum.h"
#include "registry/formats/files/file_io.h"
#include "registry/formats/files/file_mapping.h"
#include "registry/formats/text/new_tokens.h"
#include "registry/formats/text/tokenizer.h"
#include "registry/formats/web/named_sources.h"
#include "registry/language/error.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;

/// To be raised when tokenizers give other tokens for the same text, or the file is laid out otherwise.
constexpr uint32_t kTokenCacheVersion = 1;
constexpr std::array<char, 16> kTokenMagic = {'t', 'r', 'a', 'i', 'n', 'r', 'u', 'n',
                                              ' ', 't', 'o', 'k', 'e', 'n', 's', '\n'};
constexpr size_t kMostArrays = 8;
constexpr size_t kKeyLength = 64;
constexpr size_t kAlignment = 8;

/// How the file begins. Numbers are in the order of bytes of the machine; `order` tells one that has another.
struct TokenHeader {
  std::array<char, 16> magic = kTokenMagic;
  uint32_t version = kTokenCacheVersion;
  uint32_t order = 0x01020304;
  std::array<char, kKeyLength> key{};
  uint64_t num_arrays = 0;
  std::array<uint64_t, kMostArrays> sizes{};  // bytes of each array
  uint64_t checksum = 0;                      // of all arrays, one after another
};
static_assert(sizeof(TokenHeader) % kAlignment == 0 && std::has_unique_object_representations_v<TokenHeader>);

size_t aligned(size_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

/// Nothing: it is not such a file, is of another key, or is damaged.
std::optional<ByteArrays> read_arrays(const std::string& path, const std::string& key, size_t count) {
  std::error_code unreadable;
  if (!fs::is_regular_file(path, unreadable)) return std::nullopt;
  const auto file = std::make_shared<const FileMapping>(path);
  const std::string_view bytes = file->bytes();
  TokenHeader header;
  if (bytes.size() < sizeof(header)) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof(header));
  const TokenHeader expected;
  const bool is_ours = header.magic == expected.magic && header.version == expected.version &&
                       header.order == expected.order && std::string_view(header.key.data(), kKeyLength) == key;
  if (!is_ours || header.num_arrays != count) return std::nullopt;
  ByteArrays found{file, {}};
  size_t offset = sizeof(header);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t size = header.sizes[i];
    if (offset > bytes.size() || size > bytes.size() - offset) return std::nullopt;
    found.arrays.push_back(bytes.substr(offset, size));
    offset = aligned(offset + size);
  }
  if (offset != bytes.size() || token_checksum(found.arrays) != header.checksum) return std::nullopt;
  return found;
}

void write_arrays(const std::string& path, const std::string& key, const ByteArrays& made) {
  TokenHeader header;
  std::copy_n(key.begin(), kKeyLength, header.key.begin());
  header.num_arrays = made.arrays.size();
  for (size_t i = 0; i < made.arrays.size(); ++i) header.sizes.at(i) = made.arrays[i].size();
  header.checksum = token_checksum(made.arrays);
  write_file_atomically(path, [&](FileWriter& file) {
    file.write(&header, sizeof(header));
    for (const std::string_view array : made.arrays) {
      file.write(array);
      const std::array<char, kAlignment> zeros{};
      file.write(zeros.data(), aligned(array.size()) - array.size());
    }
  });
}

}  // namespace

uint64_t token_checksum(const std::vector<std::string_view>& arrays) {
  Checksum sum;
  for (const std::string_view array : arrays) sum.update(array);
  return sum.value();
}

bool are_begins(std::span<const int64_t> begins, size_t count, size_t size) {
  return begins.size() == count + 1 && begins.front() == 0 && begins.back() == static_cast<int64_t>(size) &&
         std::is_sorted(begins.begin(), begins.end());
}

TokenCacheKey::TokenCacheKey(const std::string& kind) { add(kind).add(kTokenCacheVersion); }

TokenCacheKey& TokenCacheKey::add(std::string_view text) {
  const uint64_t size = text.size();  // so that "ab" and "c" are not "a" and "bc"
  hash_.update(&size, sizeof(size));
  hash_.update(text.data(), text.size());
  return *this;
}

TokenCacheKey& TokenCacheKey::add_file(const std::string& path) { return add(digest_file(path).sha256); }

TokenCacheKey& TokenCacheKey::add_tokenizer(const std::string& path) { return add(tokenizer_digest(path)); }

TokenCacheKey& TokenCacheKey::add_tokenizer(const TokenizerSource& source) {
  add_tokenizer(source.path);
  return source.added.empty() ? *this : add(source.added.key());
}

ByteArrays arrays_on_disk(const std::string& key, size_t count, const std::function<ByteArrays()>& make) {
  return kept_in_cache<ByteArrays>(
      "tokens", key, [&](const std::string& path) { return read_arrays(path, key, count); },
      [&](const std::string& path) { write_arrays(path, key, make()); });
}

}  // namespace trainrun
