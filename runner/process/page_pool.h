#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <unordered_map>

namespace trainrun {

/// Of one large page of memory, in bytes; smaller ones have 4 KiB.
constexpr size_t kHugePage = size_t{2} << 20;

/// Memory in whole pages of one size. Free ones serve whatever size is asked for next, wherever they lie: the kernel moves
/// them side by side (mremap), which takes far less time than to map new pages and fill them with zeros. So pages in use
/// and free ones together are never more than were in use at once. Not safe to be used by several threads at a time.
class PagePool {
 public:
  /// `page`: a multiple of the system's, in bytes; memory is aligned to it.
  explicit PagePool(size_t page) : page_(page) {}
  /// What was mapped stays: memory may be in use for longer.
  ~PagePool() = default;
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  /// So many bytes or more, with any numbers in them: of free pages, then of new ones. Throws std::bad_alloc.
  void* take(size_t bytes);
  /// Whether `memory` was taken from here; it is free from now on.
  bool give(void* memory);
  /// Gives all free pages back to the system.
  void return_free();

 private:
  char* reserve(size_t bytes);
  void add_new(char* at, size_t bytes);
  size_t gather(char* to, size_t bytes);
  bool move(char* from, size_t bytes, char* to);
  void unmap(char* at, size_t bytes);
  void add_free(char* at, size_t bytes);

  size_t page_;
  std::map<char*, size_t> free_;  // bytes by address; neighbours are one entry
  std::unordered_map<void*, size_t> in_use_;
  std::set<char*> seams_;  // where a mapping begins: the kernel moves no more than one at a time
};

}  // namespace trainrun
