// Checkpoints that are written while training goes on.
#include "runner/run/checkpoint_writer.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <filesystem>
#include <limits>
#include <mutex>

#include "tests/faults/fsync.h"
#include "tests/faults/support.h"
#include "tests/runner/training_support.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;
using namespace test;

/// A disk whose fsync returns once somebody lets it.
class Disk {
 public:
  void close() {
    const std::lock_guard lock(mutex_);
    is_open_ = false;
  }
  void open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }
  /// False where nobody came for a minute.
  bool wait() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::minutes(1), [&] { return is_open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = true;
};

Disk disk;
std::string folder_to_take_away;

bool is_training_thread() { return ::syscall(SYS_gettid) == ::getpid(); }

std::string path_of(int file) { return fs::read_symlink("/proc/self/fd/" + std::to_string(file)).string(); }

int fail_with(int error) {
  errno = error;
  return -1;
}

int slow_fsync(int) { return is_training_thread() || disk.wait() ? 0 : fail_with(ETIMEDOUT); }

/// Of the checkpoint of step 10 alone.
int failing_fsync(int file) {
  if (path_of(file).find("/.step-00000010.") == std::string::npos) return 0;
  static_cast<void>(disk.wait());
  return fail_with(EIO);
}

int fsync_of_a_folder_that_goes(int file) {
  if (!folder_to_take_away.empty() && path_of(file).find("/.step-00000010.") != std::string::npos) {
    fs::rename(folder_to_take_away, folder_to_take_away + "-elsewhere");
    folder_to_take_away.clear();
  }
  return 0;
}

class FsyncIs {
 public:
  explicit FsyncIs(int (*instead)(int)) { instead_of_fsync = instead; }
  ~FsyncIs() { instead_of_fsync = nullptr; }
  FsyncIs(const FsyncIs&) = delete;
  FsyncIs& operator=(const FsyncIs&) = delete;
};

const std::vector<std::string> kEveryFifth = {
    "training={max_steps: 15}", "evaluation.every=15", "callbacks=[{type: EMA, decay: 0.9}]", "optimizer={type: AdamW}",
    "checkpoint={every: 5, keep_last: null, keep_best: {monitor: eval/loss, mode: min}}"};

std::vector<std::string> at_once(std::vector<std::string> overrides) {
  overrides.push_back("checkpoint.background=false");
  return overrides;
}

/// The error with which a run in `folder` ends, without the folder's name.
std::string error_in(const std::string& folder, Script& script, const std::vector<std::string>& overrides) {
  try {
    train_in(folder, script, overrides);
  } catch (const Error& error) {
    std::string text = error.what();
    for (size_t at = text.find(folder); at != std::string::npos; at = text.find(folder)) text.erase(at, folder.size());
    return text;
  }
  return "none";
}

}  // namespace

TEST_CASE("training goes on while the disk is slow, and a checkpoint holds the step at which it was asked for") {
  const TemporaryFolder folder;
  const FsyncIs guard(slow_fsync);
  Script script;
  script.in_training = [&](const at::Tensor& input, int64_t batch) {
    if (batch == 5) disk.close();
    if (batch == 9) {  // steps 6 to 8 were made since
      CHECK(script.checkpoints.empty());
      CHECK_FALSE(fs::exists(folder / "run/checkpoints/latest"));
      disk.open();
    }
    return input;
  };
  CHECK(train_in(folder / "run", script, kEveryFifth) == 0);
  CHECK(script.checkpoints == std::vector<int64_t>{5, 10, 15});
  Script waiting;
  CHECK(train_in(folder / "waiting", waiting, at_once(kEveryFifth)) == 0);
  check_same_outcome(folder / "run", folder / "waiting");
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    const std::string path = "/checkpoints/step-00000005/" + std::string(file);
    CHECK((content_of(folder / ("run" + path)) == content_of(folder / ("waiting" + path))));
  }
}

TEST_CASE("where saves come faster than their state can be copied, training waits until each is written") {
  const TemporaryFolder folder;
  Catalog catalog = catalog_with();
  const FsyncIs guard(slow_fsync);
  Script script;
  script.in_training = [&](const at::Tensor& input, int64_t batch) {
    const auto saved = static_cast<int64_t>(script.checkpoints.size());
    CHECK(saved == batch - 1);
    return input;
  };
  const auto now = std::chrono::steady_clock::now();
  const auto stop_clock = [&](Job& job) { job.clock = [&] { return now; }; };
  const std::vector<std::string> overrides = {"training={max_steps: 6}", "evaluation.every=null",
                                              "checkpoint={every: 1}"};
  CHECK(train_in(folder / "run", script, overrides, catalog, stop_clock) == 0);
  CHECK(CheckpointStore::verify(folder / "run/checkpoints/step-00000006").at("step") == 6);
}

TEST_CASE("what goes wrong in the background ends the run with the words that it has where the run waits") {
  const TemporaryFolder folder;
  const FsyncIs guard(failing_fsync);
  Script background, waiting;
  const std::string text = error_in(folder / "run", background, kEveryFifth);
  CHECK(text.ends_with("model.safetensors: cannot sync to disk: Input/output error"));
  CHECK(text == error_in(folder / "waiting", waiting, at_once(kEveryFifth)));
  for (const Script* script : {&background, &waiting}) {
    CHECK(script->checkpoints == std::vector<int64_t>{5});
    CHECK(script->reason.starts_with("error: "));
  }
  CHECK(fs::read_symlink(folder / "run/checkpoints/latest") == "step-00000005");
  CHECK_FALSE(fs::exists(folder / "run/checkpoints/step-00000010"));
}

TEST_CASE("where training fails while a checkpoint is written, and that fails as well, both are told") {
  const TemporaryFolder folder;
  const FsyncIs guard(failing_fsync);
  Script script;
  script.in_training = [&](const at::Tensor& input, int64_t batch) {
    if (batch == 10) disk.close();
    if (batch < 12) return input;
    disk.open();
    return input * std::numeric_limits<float>::quiet_NaN();
  };
  const std::string text = error_in(folder / "run", script, kEveryFifth);
  CAPTURE(text);
  CHECK(text.starts_with("the loss is nan at step 12"));
  CHECK(contains(text, "; the checkpoint that was being written is not saved: "));
  CHECK(contains(text, "Input/output error; the newest checkpoint is /checkpoints/step-00000005"));
}

TEST_CASE("a folder that goes while a checkpoint is written in the background is made again, and the checkpoint too") {
  const TemporaryFolder folder;
  const FsyncIs guard(fsync_of_a_folder_that_goes);
  folder_to_take_away = folder / "run";
  Script script;
  CHECK(train_in(folder / "run", script, kEveryFifth) == 0);
  CHECK(script.checkpoints == std::vector<int64_t>{5, 10, 15});
  CHECK(fs::exists(folder / "run-elsewhere/checkpoints/step-00000005"));
  CHECK(CheckpointStore::verify(folder / "run/checkpoints/step-00000010").at("step") == 10);
  CHECK(contains(content_of(folder / "run/log.txt"), "was removed or renamed during the run"));
}

TEST_CASE("checkpoints are written in their order, an error drops what comes after it, and whoever reads waits") {
  const TemporaryFolder folder;
  const std::string path = folder / "checkpoints";
  std::vector<int64_t> written;
  const CheckpointWriter::Events events = {[&](int64_t step, const std::string&) { written.push_back(step); },
                                           [] { return false; }};
  CheckpointWriter writer(CheckpointStore(path, {}), CheckpointWriter::When::kInBackground, events);
  writer.save("step-1", content_at(1), false);
  writer.amend("step-1", {{"step", 1}, {"evaluated", true}}, true);
  CHECK(writer.store().list() == std::vector<std::string>{"step-1"});
  CHECK(written == std::vector<int64_t>{1});
  CHECK(state_of(path + "/best").at("evaluated") == true);
  writer.save("step-2", content_at(2), false);
  writer.amend("step-9", {{"step", 9}}, false);  // is not there
  writer.save("step-3", content_at(3), false);
  CHECK_THROWS_AS(writer.finish(), CheckpointError);
  writer.heed();  // it was told once
  CHECK(written == std::vector<int64_t>{1, 2});
  writer.save("step-4", content_at(4), false);
  CHECK(writer.store().list() == std::vector<std::string>{"step-1", "step-2", "step-4"});
}

}  // namespace trainrun
