#include "registry/data/gzip_file.h"

#include <libdeflate.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>
#include <optional>
#include <string_view>

#include "registry/data/data_cache.h"
#include "registry/formats/files/digest.h"
#include "registry/formats/files/file_io.h"
#include "registry/language/error.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;
using Unpacked = std::shared_ptr<const FileMapping>;

constexpr size_t kEnds = size_t{64} << 10;             // of the file, by which it is known again, wherever it lies
constexpr uint32_t kWorthKeeping = uint32_t{4} << 20;  // bytes that take a start longer to unpack than to map
constexpr uint32_t kMostKept = uint32_t{1} << 30;

/// A member's last bytes (RFC 1952, 2.3.1), little-endian: of what it holds.
struct Trailer {
  uint32_t checksum = 0;
  uint32_t size = 0;
};

/// Not of the path or the time: copies of one file share what it holds.
std::string key_of(std::string_view packed) {
  Sha256 hash;
  const uint64_t size = packed.size();
  hash.update(&size, sizeof(size));
  const std::string_view begin = packed.substr(0, kEnds);
  const std::string_view end = packed.substr(packed.size() - std::min(packed.size(), kEnds));
  hash.update(begin.data(), begin.size());
  hash.update(end.data(), end.size());
  return hash.finish();
}

/// Nothing: there is no such file, or it is damaged.
std::optional<Unpacked> read_unpacked(const std::string& path, const Trailer& told) {
  std::error_code unreadable;
  if (!fs::exists(path, unreadable)) return std::nullopt;
  auto found = std::make_shared<const FileMapping>(path, MappedFor::kWriting);  // as a tensor may be
  const std::string_view bytes = found->bytes();
  const bool is_whole = bytes.size() == told.size && libdeflate_crc32(0, bytes.data(), bytes.size()) == told.checksum;
  return is_whole ? std::optional<Unpacked>(found) : std::nullopt;
}

/// Not synced to the disk: what a crash leaves of it has another checksum.
void write_unpacked(const std::string& path, const std::string& packed, size_t size) {
  const std::unique_ptr<char[]> bytes(new char[size]);
  if (!unpack_whole(packed, bytes.get(), size)) throw DataError(packed + ": not one whole member");
  const std::string part = temporary_path(path);
  std::ofstream file(part, std::ios::binary);
  file.write(bytes.get(), static_cast<std::streamsize>(size));
  file.close();
  std::error_code error;
  if (file) fs::rename(part, path, error);
  if (file && !error) return;
  std::error_code ignored;
  fs::remove(part, ignored);
  throw FileError(path, "write", error ? error.value() : errno);
}

}  // namespace

bool unpack_whole(const std::string& path, void* data, size_t size) {
  const std::unique_ptr<libdeflate_decompressor, decltype(&libdeflate_free_decompressor)> decompressor(
      libdeflate_alloc_decompressor(), &libdeflate_free_decompressor);
  if (!decompressor) throw std::bad_alloc();
  const FileMapping file(path);
  const std::string_view packed = file.bytes();
  size_t taken = 0;
  size_t given = 0;
  const libdeflate_result result =
      libdeflate_gzip_decompress_ex(decompressor.get(), packed.data(), packed.size(), data, size, &taken, &given);
  return result == LIBDEFLATE_SUCCESS && taken == packed.size() && given == size;
}

std::shared_ptr<const FileMapping> unpacked_in_cache(const std::string& path) {
  const FileMapping file(path);
  const std::string_view packed = file.bytes();
  Trailer told;
  if (packed.size() < sizeof(told) || cache_folder().empty()) return nullptr;
  std::memcpy(&told, packed.data() + packed.size() - sizeof(told), sizeof(told));
  if (told.size < kWorthKeeping || told.size > kMostKept) return nullptr;
  try {
    return kept_in_cache<Unpacked>(
        "unpacked", key_of(packed), [&](const std::string& kept) { return read_unpacked(kept, told); },
        [&](const std::string& kept) { write_unpacked(kept, path, told.size); });
  } catch (const Error&) {  // it cannot be written there, or the file is another one
    return nullptr;
  }
}

}  // namespace trainrun
