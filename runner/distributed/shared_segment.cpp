#include "runner/distributed/shared_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <random>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "runner/distributed/meeting.h"
#include "runner/process/page_pool.h"

namespace trainrun {
namespace {

constexpr size_t kPage = 4096;
constexpr int kPopulate = 23;  // MADV_POPULATE_WRITE and MADV_COLLAPSE, which older headers do not name
constexpr int kCollapse = 25;

/// Processes with the same one are in one machine and one container, where a process's number means the same to all,
/// and 127.0.0.1, too.
std::string own_machine() { return machine_name({"net", "pid"}); }

/// The pages of this size that lie between the two in full: the first, and their bytes.
std::pair<char*, size_t> whole_pages(char* begin, char* end, size_t page) {
  char* const first = begin + (page - reinterpret_cast<uintptr_t>(begin) % page) % page;
  char* const last = end - reinterpret_cast<uintptr_t>(end) % page;
  return {first, first < last ? static_cast<size_t>(last - first) : 0};
}

[[noreturn]] void fail_with_errno(const std::string& what) {
  throw std::runtime_error(what + " (" + std::strerror(errno) + ")");
}

}  // namespace

SharedSegment::SharedSegment(size_t bytes)
    : bytes_(bytes), memory_file_(::memfd_create("trainrun-ranks", MFD_CLOEXEC)) {
  if (memory_file_.number() < 0) fail_with_errno("no memory for all ranks can be made");
  if (::ftruncate(memory_file_.number(), static_cast<off_t>(mapped_bytes())) != 0) {
    fail_with_errno("no memory for all ranks can be had");
  }
  map();
  std::random_device source;
  const uint64_t token = source() | uint64_t{source()} << 32U;
  std::memcpy(token_place(), &token, sizeof token);
}

SharedSegment::SharedSegment(const std::string& place, size_t bytes) : bytes_(bytes) {
  std::istringstream words(place);
  std::string pid;
  std::string number;
  uint64_t token = 0;
  std::string machine;
  words >> pid >> number >> token;
  std::getline(words >> std::ws, machine);
  if (machine != own_machine())
    throw std::runtime_error("it is on another machine than rank 0, or in another container");
  memory_file_ = Descriptor(::open(("/proc/" + pid + "/fd/" + number).c_str(), O_RDWR | O_CLOEXEC));
  if (memory_file_.number() < 0) fail_with_errno("it may not open rank 0's memory");
  if (::lseek(memory_file_.number(), 0, SEEK_END) != static_cast<off_t>(mapped_bytes())) {
    throw std::runtime_error("rank 0's memory is of another size");
  }
  map();
  uint64_t found = 0;
  std::memcpy(&found, token_place(), sizeof found);
  if (found == token) return;
  ::munmap(reserved_, mapped_bytes() + kHugePage);
  throw std::runtime_error("another process has the number that rank 0 had");
}

void SharedSegment::map() {
  const size_t addresses = mapped_bytes() + kHugePage;
  void* const reserved = ::mmap(nullptr, addresses, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) fail_with_errno("the ranks' memory cannot be mapped");
  char* const begin = static_cast<char*>(reserved);
  const size_t skipped = kHugePage - reinterpret_cast<uintptr_t>(begin) % kHugePage;
  void* const memory =
      ::mmap(begin + skipped, mapped_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory_file_.number(), 0);
  if (memory == MAP_FAILED) {
    const int error = errno;
    ::munmap(reserved, addresses);
    errno = error;
    fail_with_errno("the ranks' memory cannot be mapped");
  }
  reserved_ = begin;
  data_ = static_cast<char*>(memory);
}

void SharedSegment::use_large_pages(char* begin, char* end) {
  const auto [first, bytes] = whole_pages(begin, end, kHugePage);
  if (bytes > 0 && ::madvise(first, bytes, kPopulate) == 0) (void)::madvise(first, bytes, kCollapse);
}

void SharedSegment::let_go(char* begin, char* end) {
  const auto [first, bytes] = whole_pages(begin, end, kPage);
  if (bytes > 0) (void)::madvise(first, bytes, MADV_DONTNEED);
}

size_t SharedSegment::mapped_bytes() const { return (bytes_ + kPage - 1) / kPage * kPage + kPage; }
char* SharedSegment::token_place() const { return data_ + mapped_bytes() - kPage; }

SharedSegment::~SharedSegment() {
  if (reserved_) ::munmap(reserved_, mapped_bytes() + kHugePage);
}

std::string SharedSegment::place() const {
  uint64_t token = 0;
  std::memcpy(&token, token_place(), sizeof token);
  return std::to_string(::getpid()) + " " + std::to_string(memory_file_.number()) + " " + std::to_string(token) + " " +
         own_machine();
}

void use_segment(c10::StorageImpl& storage, char* place, const std::shared_ptr<SharedSegment>& segment) {
  auto* owner = new std::shared_ptr<SharedSegment>(segment);  // NOLINT(cppcoreguidelines-owning-memory): by DataPtr
  const auto release = [](void* context) { delete static_cast<std::shared_ptr<SharedSegment>*>(context); };
  storage.set_data_ptr_noswap(at::DataPtr(place, owner, release, storage.device()));
}

CommonSegment open_common(const c10::intrusive_ptr<c10d::Store>& store, const std::string& name, int rank,
                          int world_size, size_t bytes, std::string objection, std::chrono::milliseconds time) {
  const auto deadline = std::chrono::steady_clock::now() + time;
  const auto wait_for = [&](const std::string& key) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    store->wait({key}, std::max(std::chrono::milliseconds(1), left));
  };
  const auto set = [&](const std::string& key, const std::string& text) {
    store->set(key, std::vector<uint8_t>(text.begin(), text.end()));
  };
  const std::string place = name + "/place";
  const std::string objections = name + "/objection";
  CommonSegment common;
  if (rank > 0) wait_for(place);
  const std::string given = rank > 0 ? store->get_to_str(place) : "";
  const bool is_offered = rank == 0 || given != "none";
  try {
    if (objection.empty() && is_offered) {
      common.segment =
          rank == 0 ? std::make_shared<SharedSegment>(bytes) : std::make_shared<SharedSegment>(given, bytes);
    }
  } catch (const std::exception& error) {
    objection = error.what();
  }
  if (!objection.empty()) store->compareSet(objections, "", "rank " + std::to_string(rank) + ": " + objection);
  if (rank == 0) set(place, common.segment ? common.segment->place() : "none");
  if (store->add(name + "/votes", 1) == world_size) set(name + "/all", "1");
  wait_for(name + "/all");
  if (store->check({objections})) return {nullptr, store->get_to_str(objections)};
  common.segment->close();
  return common;
}

}  // namespace trainrun
