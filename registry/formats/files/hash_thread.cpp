#include "registry/formats/files/hash_thread.h"

#include <algorithm>
#include <system_error>
#include <utility>

namespace trainrun {
namespace {

constexpr size_t kMost = size_t{1} << 20;        // at a time, so that another file's bytes may join
constexpr size_t kWorthAPair = size_t{4} << 10;  // less is hashed by itself

}  // namespace

void HashThread::Stream::skip(size_t size) {
  pieces[first].remove_prefix(size);
  while (first < pieces.size() && pieces[first].empty()) ++first;
}

HashThread::~HashThread() {
  if (thread_.valid()) thread_.wait();
}

void HashThread::add(Sha256& hash, std::vector<std::string_view> pieces) {
  pieces.erase(std::remove(pieces.begin(), pieces.end(), std::string_view()), pieces.end());
  if (pieces.empty()) return;
  wait(hash);
  std::unique_lock lock(mutex_);
  streams_.push_back({&hash, std::move(pieces)});
  if (is_running_) return;
  is_running_ = true;
  lock.unlock();
  try {
    thread_ = std::async(std::launch::async, [this] { run(); });
  } catch (const std::system_error&) {  // the system allows no more threads
    run();
  }
}

void HashThread::wait(const Sha256& hash) {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] {
    return std::none_of(streams_.begin(), streams_.end(), [&](const Stream& one) { return one.hash == &hash; });
  });
}

/// Until nothing is left. Only this takes streams out, so the first two stay while they are hashed.
void HashThread::run() {
  std::unique_lock lock(mutex_);
  while (!streams_.empty()) {
    Stream& first = streams_[0];
    Stream* const second = streams_.size() > 1 ? &streams_[1] : nullptr;
    lock.unlock();
    if (second != nullptr) {
      hash_some(first, *second);
    } else {
      hash_some(first);
    }
    lock.lock();
    const size_t before = streams_.size();
    streams_.erase(std::remove_if(streams_.begin(), streams_.end(), [](const Stream& s) { return s.next().empty(); }),
                   streams_.end());
    if (streams_.size() < before) done_.notify_all();
  }
  is_running_ = false;
}

void HashThread::hash_some(Stream& stream) {
  const std::string_view bytes = stream.next().substr(0, kMost);
  stream.hash->update(bytes.data(), bytes.size());
  stream.skip(bytes.size());
}

void HashThread::hash_some(Stream& a, Stream& b) {
  const size_t size = std::min({a.next().size(), b.next().size(), kMost});
  if (size < kWorthAPair) return hash_some(a.next().size() <= b.next().size() ? a : b);
  Sha256::update_both(*a.hash, a.next().data(), *b.hash, b.next().data(), size);
  a.skip(size);
  b.skip(size);
}

}  // namespace trainrun
