#include "runner/process/page_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <new>

namespace trainrun {

/// Addresses without memory, aligned to a page.
char* PagePool::reserve(size_t bytes) {
  const size_t all = bytes + page_;
  void* const mapped = ::mmap(nullptr, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  auto* const begin = static_cast<char*>(mapped);
  const size_t before = (page_ - reinterpret_cast<uintptr_t>(begin) % page_) % page_;
  if (before > 0) ::munmap(begin, before);
  if (before < page_) ::munmap(begin + before + bytes, page_ - before);
  return begin + before;
}

void PagePool::add_new(char* at, size_t bytes) {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  if (::mmap(at, bytes, PROT_READ | PROT_WRITE, kFlags, -1, 0) == MAP_FAILED) throw std::bad_alloc();
  if (page_ >= kHugePage) ::madvise(at, bytes, MADV_HUGEPAGE);  // else each 4 KiB of it are a fault
  seams_.insert(at);
}

void PagePool::unmap(char* at, size_t bytes) {
  ::munmap(at, bytes);
  seams_.erase(seams_.lower_bound(at), seams_.lower_bound(at + bytes));
}

/// Whether the kernel did; else what has not moved yet is given back to it.
bool PagePool::move(char* from, size_t bytes, char* to) {
  char* const end = from + bytes;
  while (from < end) {
    const auto next = seams_.upper_bound(from);
    const auto part = static_cast<size_t>((next == seams_.end() ? end : std::min(end, *next)) - from);
    if (::mremap(from, part, part, MREMAP_MAYMOVE | MREMAP_FIXED, to) == MAP_FAILED) {
      unmap(from, static_cast<size_t>(end - from));
      return false;
    }
    seams_.erase(from);
    seams_.insert(to);
    from += part;
    to += part;
  }
  return true;
}

/// Moves free pages to `to`, as many as are wanted and there: returns their bytes.
size_t PagePool::gather(char* to, size_t bytes) {
  size_t got = 0;
  while (got < bytes && !free_.empty()) {
    const auto largest =
        std::max_element(free_.begin(), free_.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    const auto [at, size] = *largest;
    const size_t part = std::min(size, bytes - got);
    free_.erase(largest);
    if (part < size) {
      free_.emplace(at + part, size - part);
      seams_.insert(at + part);
    }
    if (!move(at, part, to + got)) break;
    got += part;
  }
  return got;
}

void PagePool::add_free(char* at, size_t bytes) {
  const auto next = free_.lower_bound(at);
  if (next != free_.end() && next->first == at + bytes) {
    bytes += next->second;
    free_.erase(next);
  }
  const auto after = free_.lower_bound(at);
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == at) {
      before->second += bytes;
      return;
    }
  }
  free_.emplace(at, bytes);
}

void* PagePool::take(size_t bytes) {
  bytes = std::max<size_t>(1, (bytes + page_ - 1) / page_) * page_;
  auto best = free_.end();
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (it->second >= bytes && (best == free_.end() || it->second < best->second)) best = it;
  }
  char* at = nullptr;
  if (best != free_.end()) {
    const size_t rest = best->second - bytes;
    at = best->first;
    free_.erase(best);
    if (rest > 0) free_.emplace(at + bytes, rest);
  } else {
    at = reserve(bytes);
    size_t got = 0;
    try {
      got = gather(at, bytes);
      if (got < bytes) add_new(at + got, bytes - got);
    } catch (const std::bad_alloc&) {
      ::munmap(at + got, bytes - got);
      if (got > 0) add_free(at, got);
      throw;
    }
  }
  in_use_.emplace(at, bytes);
  return at;
}

bool PagePool::give(void* memory) {
  const auto found = in_use_.find(memory);
  if (found == in_use_.end()) return false;
  add_free(static_cast<char*>(memory), found->second);
  in_use_.erase(found);
  return true;
}

void PagePool::return_free() {
  for (const auto& [at, bytes] : free_) unmap(at, bytes);
  free_.clear();
}

}  // namespace trainrun
