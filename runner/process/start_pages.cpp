#include "runner/process/start_pages.h"

#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>

namespace trainrun {
namespace {

constexpr size_t kLeastBytesOfPart = size_t{16} << 20;  // of a part of a library: LibTorch's alone are that large

/// A debugger writes its breakpoints into code, and they would be lost.
bool is_traced() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word && word != "TracerPid:") {
  }
  int64_t tracer = 0;
  return status >> tracer && tracer != 0;
}

/// Whether the loader wrote addresses into the library's code, which its file does not have.
bool has_changed_code(const dl_phdr_info& library) {
  for (int i = 0; i < library.dlpi_phnum; ++i) {
    if (library.dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    const auto* entry = reinterpret_cast<const ElfW(Dyn)*>(library.dlpi_addr + library.dlpi_phdr[i].p_vaddr);
    for (; entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag == DT_TEXTREL || (entry->d_tag == DT_FLAGS && (entry->d_un.d_val & DF_TEXTREL) != 0))
        return true;
    }
  }
  return false;
}

int give_back(dl_phdr_info* library, size_t /*size*/, void* error) {
  if (has_changed_code(*library)) return 0;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  for (int i = 0; i < library->dlpi_phnum; ++i) {
    const ElfW(Phdr) & part = library->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || (part.p_flags & PF_W) != 0 || part.p_filesz < kLeastBytesOfPart) continue;
    const uintptr_t begin = (library->dlpi_addr + part.p_vaddr + page - 1) / page * page;
    const uintptr_t end = (library->dlpi_addr + part.p_vaddr + part.p_filesz) / page * page;
    if (madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED) != 0) *static_cast<int*>(error) = errno;
  }
  return 0;
}

}  // namespace

std::string give_back_start_pages() {
  if (is_traced()) return "a debugger looks on, whose breakpoints would be lost";
  int error = 0;
  dl_iterate_phdr(&give_back, &error);
  return error == 0 ? "" : std::strerror(error);
}

}  // namespace trainrun
