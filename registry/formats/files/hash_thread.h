#pragma once

#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <string_view>
#include <vector>

#include "registry/formats/files/digest.h"

namespace trainrun {

/// Hashes for several files on one thread, two at a time where two are waiting.
class HashThread {
 public:
  HashThread() = default;
  HashThread(const HashThread&) = delete;
  HashThread& operator=(const HashThread&) = delete;
  ~HashThread();

  /// Updates `hash` with the pieces, in their order. They stay as they are, and nobody else uses `hash`, until `wait`
  /// has returned.
  void add(Sha256& hash, std::vector<std::string_view> pieces);
  /// Returns when all that was added for `hash` is in it.
  void wait(const Sha256& hash);

 private:
  struct Stream {
    Sha256* hash;
    std::vector<std::string_view> pieces;
    size_t first = 0;  // of the pieces that are left
    std::string_view next() const { return first < pieces.size() ? pieces[first] : std::string_view(); }
    void skip(size_t size);
  };

  void run();
  static void hash_some(Stream& stream);
  static void hash_some(Stream& a, Stream& b);

  std::mutex mutex_;
  std::condition_variable done_;
  std::deque<Stream> streams_;  // a deque: additions move none of them
  bool is_running_ = false;
  std::future<void> thread_;  // destroyed first, since it waits
};

}  // namespace trainrun
