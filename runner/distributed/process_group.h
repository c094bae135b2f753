#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "registry/kinds/communicator.h"
#include "registry/language/error.h"
#include "runner/distributed/distributed_error.h"
#include "runner/distributed/rank_monitor.h"
#include "runner/distributed/rendezvous.h"

namespace c10d {
class Backend;
class ProcessGroup;
class ProcessGroupGloo;
class Store;
class Work;
}  // namespace c10d

namespace trainrun {

class Accelerator;
struct DivisibleStep;
struct StepDivision;
class SharedBackend;
class SharedSegment;

/// What was handed to one collective: calls, and bytes of this rank's tensors in them.
struct Traffic {
  int64_t calls = 0;
  int64_t bytes = 0;
};

/// How long ranks wait for each other.
struct GroupTimeouts {
  std::chrono::seconds step{100};  // and how long one may be silent at any time
  std::chrono::seconds meeting{100};
  std::chrono::seconds evaluation{1000};
  std::chrono::seconds checkpoint{1000};  // and in start-up, which reads data and checkpoints

  std::chrono::seconds of(Phase phase) const;
};

/// The processes of a job, connected by Gloo (Source: c10d, as torch.distributed uses it). Where all are on one machine
/// and can map memory of each other, collectives go through that (SharedMemory), and messages by Gloo. A collective that
/// does not end within the timeout, since a rank has died or hangs, throws DistributedError; nothing can be reduced
/// afterwards.
/// Every rank makes the same calls in the same order; `what` says what for, in errors and in `traffic`: "gradients".
/// A process that trains alone is a group of one, in which every call gives back what it was given, at once.
class ProcessGroup : public Communicator {
 public:
  enum class Backend {
    kGloo,
    kFake  // this rank alone, as if the others were there and answered at once: for dry runs
  };
  /// This process alone: it is connected to nobody, and nothing is counted as traffic.
  ProcessGroup();
  /// Waits until all ranks have come. Throws DistributedError.
  ProcessGroup(const Rendezvous& rendezvous, const GroupTimeouts& timeouts, Backend backend = Backend::kGloo);
  ~ProcessGroup() override;
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  /// From now on tensors on `device`, this rank's own GPU, travel by NCCL; those on the CPU by Gloo still. Throws
  /// DistributedError.
  void add_device(const Accelerator& accelerator, at::Device device, std::chrono::seconds timeout);

  int64_t rank() const override { return rendezvous_.rank; }
  int64_t world_size() const override { return rendezvous_.world_size; }
  bool is_main() const { return rendezvous_.rank == 0; }
  bool is_alone() const { return !group_; }
  bool is_fake() const { return backend_ == Backend::kFake; }
  /// Why the ranks do not exchange through shared memory; empty: they do, or there is nobody else.
  const std::string& why_not_shared() const { return why_not_shared_; }

  /// Replaces each tensor by its sum over ranks; they have one shape and dtype everywhere.
  void sum(const std::vector<at::Tensor>& tensors, const std::string& what);
  /// For components: layers that span ranks, communication hooks.
  void sum(const at::Tensor& tensor) override;
  FutureTensor start_sum(const at::Tensor& tensor) override;
  /// Begins to replace gradients by their mean over ranks. The future is complete at the latest when all are whose calls
  /// follow each other up to one that `is_last`.
  FutureTensor start_mean(const at::Tensor& gradients, bool is_last);
  /// Gradients lie in these tensors from now on: where possible, in memory that the ranks have in common. All call it.
  void share_memory_of(const std::vector<at::Tensor>& tensors);
  /// Zeros that all ranks map; null where they are on several machines or cannot. All call it. `what`: will lie there.
  std::shared_ptr<SharedSegment> map_common(size_t bytes, const std::string& what);
  /// Lets the ranks divide the optimizer's step, whose state then lies in memory that they have in common; null where
  /// they are on several machines or cannot. All call it.
  std::unique_ptr<StepDivision> divide(const DivisibleStep& step);
  /// The greatest of all ranks' numbers.
  int64_t max(int64_t number, const std::string& what);
  /// Replaces each tensor by rank 0's; those of one dtype travel together.
  void broadcast(const std::vector<at::Tensor>& tensors, const std::string& what);
  /// The rows [n, …] of all ranks, one rank after the other; n may differ.
  at::Tensor gather_rows(const at::Tensor& rows, const std::string& what);
  /// Begins to fill `whole` [world_size * n] with the ranks' `part` [n].
  c10::intrusive_ptr<c10d::Work> start_all_gather(const at::Tensor& whole, const at::Tensor& part,
                                                  const std::string& what);
  /// For `traffic`: the ranks' `part` was gathered without this group.
  void count_all_gather(const at::Tensor& part, const std::string& what) { count("all_gather", what, part); }
  /// Begins to fill `part` [n] with this rank's part of the sum over ranks of `whole` [world_size * n].
  c10::intrusive_ptr<c10d::Work> start_reduce_scatter(const at::Tensor& part, const at::Tensor& whole,
                                                      const std::string& what);
  /// Waits for what was begun.
  void finish(const c10::intrusive_ptr<c10d::Work>& work, const std::string& what);
  /// Sends a tensor to rank 0, which calls `receive_from`.
  void send_to_main(const at::Tensor& tensor, const std::string& what);
  void receive_from(int64_t rank, const at::Tensor& tensor, const std::string& what);
  void barrier(const std::string& what);
  /// The job is done, and nothing is sent any more: the ranks stop looking after each other, and wait until all have come
  /// this far, so that none uses a store whose process has ended. Ranks that are late or lost by then are ignored.
  void leave();
  /// Rank 0's text.
  std::string share_text(const std::string& text, const std::string& what);
  /// The texts of all ranks, by rank.
  std::vector<std::string> gather_texts(const std::string& text, const std::string& what);

  /// What this rank has handed to collectives so far: by operation and purpose, ("all_reduce", "gradients").
  std::map<std::pair<std::string, std::string>, Traffic> traffic() const;

  /// For c10d's own Reducer; null where this process is alone.
  const c10::intrusive_ptr<c10d::ProcessGroup>& handle() const { return group_; }

  /// Runs `body`, which communicates; what it throws becomes a DistributedError that names `what`, the step, and the
  /// ranks that do not answer or have not come as far as this one.
  void guarded(const std::string& what, const std::function<void()>& body);
  /// So many steps are done: for errors.
  void set_step(int64_t step);
  /// What the ranks do from now on: for errors, and how long they wait. Returns what it was before.
  Phase set_phase(Phase phase);

 private:
  void connect();
  void connect_gloo(const std::string& address);
  void connect_shared_memory();
  void guard(const std::string& what, const std::function<void()>& body, std::optional<RankMonitor::Duration> limit);
  /// `body` does nothing but wait for the others: as long as the phase allows.
  void wait_for_others(const std::string& what, const std::function<void()>& body);
  void count(const std::string& operation, const std::string& what, const at::Tensor& tensor);

  Rendezvous rendezvous_;
  GroupTimeouts timeouts_;
  Phase phase_ = Phase::kMeeting;
  Backend backend_ = Backend::kGloo;
  c10::intrusive_ptr<c10d::Store> store_;
  std::unique_ptr<RankMonitor> monitor_;  // null: alone, or fake
  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo_;
  std::string why_not_shared_;
  c10::intrusive_ptr<SharedBackend> shared_;      // null: ranks are on several machines, or one cannot or will not
  c10::intrusive_ptr<c10d::ProcessGroup> group_;  // null: this process alone
  c10::intrusive_ptr<c10d::Backend> nccl_;        // null: all tensors are on the CPU
  mutable std::mutex traffic_mutex_;
  std::map<std::pair<std::string, std::string>, Traffic> traffic_;
};

/// While one lives, the ranks are in that phase.
class PhaseScope {
 public:
  PhaseScope(ProcessGroup& group, Phase phase) : group_(group), before_(group.set_phase(phase)) {}
  ~PhaseScope() { group_.set_phase(before_); }
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  ProcessGroup& group_;
  Phase before_;
};

}  // namespace trainrun
