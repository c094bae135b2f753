#include "registry/data/gzip_file.h"

#include <libdeflate.h>

#include <memory>
#include <new>
#include <string_view>

#include "registry/formats/files/file_mapping.h"

namespace trainrun {

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

}  // namespace trainrun
