#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "registry/error.h"
#include "runner/distributed/rendezvous.h"

namespace c10d {
class ProcessGroup;
class Store;
}  // namespace c10d

namespace trainrun {

/// A rank is lost, or communication with it failed.
class DistributedError : public Error {
 public:
  using Error::Error;
};

/// The processes of a job, connected by Gloo (Source: c10d, as torch.distributed uses it). A collective that does not
/// end within the timeout, since a rank has died or hangs, throws DistributedError; nothing can be reduced afterwards.
class ProcessGroup {
 public:
  /// Waits until all ranks have come. Throws DistributedError.
  ProcessGroup(const Rendezvous& rendezvous, std::chrono::seconds timeout);
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  int64_t rank() const { return rendezvous_.rank; }
  int64_t world_size() const { return rendezvous_.world_size; }
  bool is_main() const { return rendezvous_.rank == 0; }

  /// Replaces each tensor by its sum over ranks; they have one shape and dtype everywhere. `what` is for errors:
  /// "evaluation's sums".
  void sum(const std::vector<at::Tensor>& tensors, const std::string& what);
  /// The greatest of all ranks' numbers.
  int64_t max(int64_t number, const std::string& what);
  /// Replaces each tensor by rank 0's.
  void broadcast(const std::vector<at::Tensor>& tensors, const std::string& what);
  /// The rows [n, …] of all ranks, one rank after the other; n may differ.
  at::Tensor gather_rows(const at::Tensor& rows, const std::string& what);
  void barrier(const std::string& what);
  /// Rank 0's text.
  std::string share_text(const std::string& text, const std::string& what);

  /// For c10d's own Reducer.
  const c10::intrusive_ptr<c10d::ProcessGroup>& handle() const { return group_; }

  /// Runs `body`, which communicates; what it throws becomes a DistributedError that names `what`, the step, and the
  /// ranks that do not answer or have not come as far as this one.
  void guarded(const std::string& what, const std::function<void()>& body);
  /// So many steps are done: for errors.
  void set_step(int64_t step) { step_ = step; }

 private:
  void beat();
  std::string lagging();

  std::atomic<int64_t> step_ = 0;
  std::atomic<int64_t> come_to_ = 0;  // how many times something was guarded: the same on all ranks
  Rendezvous rendezvous_;
  c10::intrusive_ptr<c10d::Store> store_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  std::mutex mutex_;
  std::condition_variable end_;
  bool ends_ = false;
  std::thread heart_;  // notes in the store, again and again, that this rank lives and how far it has come
};

}  // namespace trainrun
