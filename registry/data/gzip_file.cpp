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
constexpr size_t kTrailer = 8;                         // of a member: the checksum and the size of what it holds
constexpr uint32_t kWorthKeeping = uint32_t{4} << 20;  // bytes that take a start longer to unpack than to map
constexpr uint32_t kMostKept = uint32_t{1} << 30;

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

/// A number of a member's trailer, the least byte first (RFC 1952, 2.3.1).
uint32_t number_at(const char* bytes) {
  uint32_t number = 0;
  for (size_t i = 0; i < sizeof(number); ++i) number |= uint32_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  return number;
}

/// Nothing: there is no such file, or it is damaged.
std::optional<Unpacked> read_unpacked(const std::string& path, size_t size, uint32_t checksum) {
  std::error_code unreadable;
  if (!fs::exists(path, unreadable)) return std::nullopt;
  auto found = std::make_shared<const FileMapping>(path, MappedFor::kWriting);  // as a tensor may be
  const std::string_view bytes = found->bytes();
  if (bytes.size() != size || libdeflate_crc32(0, bytes.data(), bytes.size()) != checksum) return std::nullopt;
  return found;
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
  if (packed.size() < kTrailer || cache_folder().empty()) return nullptr;
  const uint32_t checksum = number_at(packed.data() + packed.size() - kTrailer);
  const uint32_t size = number_at(packed.data() + packed.size() - kTrailer / 2);
  if (size < kWorthKeeping || size > kMostKept) return nullptr;
  try {
    return kept_in_cache<Unpacked>(
        "unpacked", key_of(packed), [&](const std::string& kept) { return read_unpacked(kept, size, checksum); },
        [&](const std::string& kept) { write_unpacked(kept, path, size); });
  } catch (const Error&) {  // it cannot be written there, or the file is another one
    return nullptr;
  }
}

}  // namespace trainrun
