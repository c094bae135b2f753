#pragma once

#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "registry/formats/files/descriptor.h"

namespace c10d {
class Store;
}

namespace trainrun {

/// Memory that several processes of one machine map. It has no name: the others find it by the process that made it,
/// and it goes with the last of them, however they end.
class SharedSegment {
 public:
  /// `bytes` zeros. Throws std::runtime_error.
  explicit SharedSegment(size_t bytes);
  /// That of another process, by its `place`. Throws std::runtime_error: it is on another machine, or may not be opened.
  SharedSegment(const std::string& place, size_t bytes);
  ~SharedSegment();
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;

  /// Where others find it, until `close`.
  std::string place() const;
  void close() { memory_file_ = Descriptor(); }
  /// Begins with a page, of those that `use_large_pages` asks for.
  char* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  /// Asks for pages of 2 MiB, so that a walk over it does not look up a page every 1,024 numbers. Only a hint: a kernel
  /// before 6.1 has no such call, and free memory may be in too many pieces.
  void use_large_pages() const { use_large_pages(data_, data_ + bytes_); }
  /// The same, for those that lie in this stretch in full.
  static void use_large_pages(char* begin, char* end);
  /// Takes the pages that lie in this stretch in full from this process, so that it does not count them as its own. They
  /// keep what they hold, and come back when they are touched.
  static void let_go(char* begin, char* end);

 private:
  size_t mapped_bytes() const;
  char* token_place() const;
  void map();

  size_t bytes_;
  Descriptor memory_file_;
  char* reserved_ = nullptr;  // addresses, more than are needed, so that `data_` can begin where a large page may
  char* data_ = nullptr;      // after it comes a page with a number that tells it from others
};

/// The storage's numbers lie at `place` from now on, in a segment that it keeps.
void use_segment(c10::StorageImpl& storage, char* place, const std::shared_ptr<SharedSegment>& segment);

/// A segment that all ranks have mapped; null, with the same reason on all ranks, where one of them cannot or will not.
struct CommonSegment {
  std::shared_ptr<SharedSegment> segment;
  std::string reason;
};

/// All ranks call it; they vote through the store, under `name`. `objection`: why this rank will not, or empty. Throws
/// what the store throws where a rank does not come in time.
CommonSegment open_common(const c10::intrusive_ptr<c10d::Store>& store, const std::string& name, int rank,
                          int world_size, size_t bytes, std::string objection, std::chrono::milliseconds time);

}  // namespace trainrun
