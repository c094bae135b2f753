#include "runner/process/huge_pages.h"

#include <fcntl.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

namespace trainrun {
namespace {

constexpr int kFirstHeap = 192 << 20;             // of addresses: what is not used takes no memory
constexpr size_t kMoreThanLeft = 1 << 20;         // of the heap that the dynamic loader has begun
constexpr size_t kSurelyUsed = size_t{48} << 20;  // LibTorch 2.11 registers its operators in 57 MB
constexpr unsigned long kFewestFree = 96;         // blocks of 2 MB
constexpr int kOrderOfHuge = 9;                   // 4 KiB << 9

// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables): from before main
const char* outcome = "this program does not begin with them";
int error_number = 0;
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

/// How many blocks of 2 MB the system has free, by /proc/buddyinfo: "Node 0, zone Normal", and how many there are of 4 KiB,
/// 8 KiB, … to 4 MiB. Where there are none, the kernel would move other memory about for each huge page.
unsigned long free_blocks() {
  char text[4096];
  const int file = open("/proc/buddyinfo", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  const ssize_t size = read(file, text, sizeof text - 1);
  close(file);
  text[size > 0 ? size : 0] = '\0';
  unsigned long sum = 0;
  for (const char* zone = std::strstr(text, "zone"); zone; zone = std::strstr(zone, "zone")) {
    zone += std::strlen("zone");
    zone += std::strspn(zone, " ");
    zone += std::strcspn(zone, " \n");  // its name
    char* end = nullptr;
    for (int order = 0;; ++order, zone = end) {
      const unsigned long count = std::strtoul(zone, &end, 10);
      if (end == zone || std::memchr(zone, '\n', static_cast<size_t>(end - zone))) break;
      if (order >= kOrderOfHuge) sum += count << (order - kOrderOfHuge);
    }
  }
  return sum;
}

}  // namespace

__attribute__((no_sanitize("address", "undefined"))) bool keep_freed_memory(int extend_by) {
  const bool is_kept = mallopt(M_MMAP_THRESHOLD, 1 << 30) != 0;  // large blocks come from the heap, too,
  mallopt(M_TRIM_THRESHOLD, INT_MAX);                            // and stay there
  mallopt(M_TOP_PAD, extend_by);
  return is_kept;
}

/// The C library can allocate by now (the dynamic loader itself does so), but C++ objects have no constructors yet.
__attribute__((no_sanitize("address", "undefined"))) void begin_heap_with_huge_pages(int, char**, char**) {
  char* const before = static_cast<char*>(sbrk(0));
  keep_freed_memory(kFirstHeap);
  void* volatile block = std::malloc(kMoreThanLeft);  // volatile: the compiler would leave out both calls
  std::free(block);
  char* const end = static_cast<char*>(sbrk(0));
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  char* const begin = before + (page - reinterpret_cast<size_t>(before) % page) % page;
  if (end <= begin || static_cast<size_t>(end - begin) < kSurelyUsed) {  // another allocator, or a limit
    outcome = "the heap could not be extended by 192 MB";
  } else if (free_blocks() >= kFewestFree) {
    outcome = "";
    if (madvise(begin, static_cast<size_t>(end - begin), MADV_HUGEPAGE) != 0) error_number = errno;
  } else {
    outcome = "the system has few blocks of 2 MB free; 48 MB of small pages were fetched at once";
    if (madvise(begin, kSurelyUsed, MADV_POPULATE_WRITE) != 0) error_number = errno;
  }
}

std::string huge_pages_outcome() { return error_number == 0 ? outcome : std::strerror(error_number); }

}  // namespace trainrun
