#pragma once

#include <nlohmann/json.hpp>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runner/run/checkpoint_store.h"

namespace trainrun {

/// Writes a run's checkpoints in the order in which they are asked for: on a thread of its own while training goes on, or
/// at once. What that thread did is told, and what failed there is thrown, when the training thread asks: in `heed`,
/// `finish` and `store`. All members belong to the training thread.
class CheckpointWriter {
 public:
  enum class When { kAtOnce, kInBackground };
  /// Both are called on the training thread.
  struct Events {
    /// A checkpoint is on the disk, under its name.
    std::function<void(int64_t step, const std::string& path)> on_written;
    /// Saving failed with a FileError: whether the run's folder was gone and is there again, so that it is worth
    /// another try.
    std::function<bool()> restore_folder;
  };

  CheckpointWriter(CheckpointStore store, When when, Events events);
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;
  /// Waits for what is still to be written. Its errors are lost: call `finish` before.
  ~CheckpointWriter();

  /// As CheckpointStore's. With kInBackground, nothing may change the tensors from now on (make_own). Callers `finish`
  /// before they copy the state, so that memory holds one copy at a time.
  void save(const std::string& name, CheckpointContent content, bool is_best);
  /// As CheckpointStore's, once the saves before it are done.
  void amend(const std::string& name, nlohmann::json state, bool is_best);

  /// Tells what was written since the last call, without waiting. Throws what writing threw; what was to be written
  /// after that is then dropped.
  void heed();
  /// The same, after waiting until everything is written, and older checkpoints are removed.
  void finish();
  /// The same, where older ones may still be removed: what was given to `save` is not read any more.
  void finish_writing();
  /// The checkpoints, once everything is written: for whoever reads them.
  CheckpointStore& store();

 private:
  struct Task {
    bool amends;
    std::string name;
    CheckpointContent content;
    bool is_best;
    bool is_written = false;  // what is left is to remove older ones
  };
  struct Written {
    int64_t step;
    std::string path;
  };
  using Lock = std::unique_lock<std::mutex>;

  void add(Task task);
  void work();
  void write_first(Lock& lock);
  template <class Condition>
  void wait_until(const Condition& condition);
  void tell(Lock& lock);
  void try_again_or_throw(Lock& lock);

  CheckpointStore store_;
  When when_;
  Events events_;
  std::mutex mutex_;  // over what follows
  std::condition_variable changed_;
  std::deque<Task> tasks_;        // the first is being written; it stays until that is done
  std::vector<Written> written_;  // to be told
  std::exception_ptr error_;      // of the first task; nothing is written until the training thread has taken it
  bool is_ending_ = false;
  std::thread thread_;  // from the first task on
};

}  // namespace trainrun
