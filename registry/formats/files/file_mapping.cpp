#include "registry/formats/files/file_mapping.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

#include "registry/formats/files/regular_file.h"

namespace trainrun {

FileMapping::FileMapping(const std::string& path, MappedFor use) {
  const Descriptor file = open_regular_file(path);
  struct stat status{};
  if (fstat(file.number(), &status) != 0) throw ReadError(path, "read", errno);
  size_ = static_cast<size_t>(status.st_size);
  if (size_ == 0) return;
  const int writing = use == MappedFor::kWriting ? PROT_WRITE : 0;
  void* address = mmap(nullptr, size_, PROT_READ | writing, MAP_PRIVATE, file.number(), 0);
  if (address == MAP_FAILED) throw ReadError(path, "map", errno);
  begin_ = static_cast<char*>(address);
}

FileMapping::~FileMapping() {
  if (begin_) munmap(begin_, size_);
}

}  // namespace trainrun
