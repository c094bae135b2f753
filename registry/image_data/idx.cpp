#include "registry/image_data/idx.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <array>
#include <vector>

#include "registry/data/data_file.h"
#include "registry/data/gzip_file.h"
#include "registry/formats/files/file_io.h"
#include "registry/language/error.h"
#include "registry/language/hex.h"

namespace trainrun {
namespace {

constexpr unsigned char kUnsignedByte = 0x08;
// A damaged header must not ask for all memory.
constexpr int64_t kMostBytes = int64_t{1} << 32;
constexpr uint64_t kBestCompression = 1032;  // of deflate: no file unpacks to more than so many times its bytes

std::string hexadecimal(const std::array<unsigned char, 4>& bytes) {
  return hex_of({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace

at::Tensor read_idx(const std::string& path, int64_t num_dims) {
  DataFile file(path);
  std::array<unsigned char, 4> magic{};
  file.read_exactly(magic.data(), magic.size(), "the IDX header");
  if (magic[0] != 0 || magic[1] != 0) {
    throw DataError(path + ": not an IDX file: it begins with " + hexadecimal(magic) + ", expected 0000080" +
                    std::to_string(num_dims));
  }
  if (magic[2] != kUnsignedByte) {
    throw DataError(path + ": an IDX file with another type of numbers (magic number " + hexadecimal(magic) +
                    "), expected unsigned bytes (08)");
  }
  if (magic[3] != num_dims) {
    throw DataError(path + ": an IDX file of " + std::to_string(magic[3]) + " dimensions, expected " +
                    std::to_string(num_dims) + (num_dims == 1 ? " (labels)" : " (images)"));
  }
  std::vector<int64_t> sizes;
  int64_t total = 1;
  for (int64_t dim = 0; dim < num_dims; ++dim) {
    std::array<unsigned char, 4> bytes{};
    file.read_exactly(bytes.data(), bytes.size(), "the IDX header");
    sizes.push_back(int64_t{bytes[0]} << 24 | int64_t{bytes[1]} << 16 | int64_t{bytes[2]} << 8 | int64_t{bytes[3]});
    if (sizes.back() > 0 && total > kMostBytes / sizes.back()) {
      throw DataError(path + ": damaged IDX header: it announces more than " + std::to_string(kMostBytes) + " bytes");
    }
    total *= sizes.back();
  }
  if (static_cast<uint64_t>(total) / kBestCompression > FileReader(path).size()) {
    throw DataError(path + ": damaged IDX header: it announces " + std::to_string(total) +
                    " bytes, more than a file of this size can hold");
  }
  if (has_extension(path, ".gz")) {
    const auto header = static_cast<int64_t>(magic.size()) * (1 + num_dims);
    const auto kept = unpacked_in_cache(path);
    if (kept && kept->bytes().size() == static_cast<size_t>(header + total)) {
      return at::from_blob(kept->begin() + header, sizes, [kept](void*) {}, at::kByte);
    }
    const at::Tensor whole = at::empty({header + total}, at::kByte);
    if (unpack_whole(path, whole.data_ptr(), static_cast<size_t>(whole.numel()))) {
      return whole.narrow(0, header, total).view(sizes);
    }
  }
  at::Tensor result = at::empty(sizes, at::kByte);
  file.read_exactly(result.data_ptr(), static_cast<size_t>(total), "the data its header announces");
  char more = 0;
  if (file.read(&more, 1) != 0) throw DataError(path + ": holds more bytes than its header announces");
  return result;
}

}  // namespace trainrun
