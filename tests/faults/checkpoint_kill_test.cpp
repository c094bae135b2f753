// Kills a save, and makes it fail, at each of its system calls in turn.
#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "runner/run/checkpoint_store.h"
#include "tests/doctest.h"
#include "tests/faults/fsync.h"
#include "tests/faults/support.h"
#include "tests/faults/system_calls.h"
#include "tests/sanitizers.h"
#include "tests/support.h"
#include "tests/temporary_folder.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;
using test::content_at;
using test::quickly;

/// The step that every part of a checkpoint tells; -1 where they differ.
int64_t step_of(const CheckpointContent& content) {
  const auto step = content.state["step"].get<int64_t>();
  const auto value = static_cast<float>(step);
  const bool whole = content.model.size() == 1 && content.model[0].second.equal(at::full({3, 2}, value)) &&
                     content.optimizer.size() == 1 && content.optimizer[0].second.equal(at::full({3, 2}, -value));
  return whole ? step : -1;
}

/// A save onto what earlier saves left.
struct Scenario {
  std::string what;
  std::vector<int64_t> before;  // steps, each saved as "step-N"; the first as the best
  std::string name;             // of the save that goes wrong, whose step is 40
  bool is_best;
  std::string unsupported;  // a system call that this file system lacks
};

std::vector<Scenario> scenarios() {
  return {
      {"the first one", {}, "step-40", true, ""},
      {"a new one, and an old one to remove", {10, 20, 30}, "step-40", false, ""},
      {"a new best one", {10, 20, 30}, "step-40", true, ""},
      {"one that replaces another of its name", {30}, "step-30", true, ""},
      {"the same where names cannot be exchanged", {30}, "step-30", false, "exchange"},
  };
}

/// Each call fails with one of them, in turn; with TRAINRUN_LONG_TESTS in the environment, with each.
constexpr std::array kSaveErrors = {ENOSPC, EIO, EMFILE, ESTALE, EACCES, ENOMEM};
/// The sanitizers find nothing in a process that is killed, and its calls that follow each other leave much the same.
constexpr int kEveryKill = test::kIsSanitized ? 4 : 1;
/// What it does with an error they look at, in a process for each call that fails.
constexpr int kEveryFailure = test::kIsSanitized ? 3 : 1;
constexpr RetentionPolicy kPolicy{.keep_last = 2, .keep_best = true};

/// The exit code of a save: 0, 3 for an error that names a path, 4 for another.
int save(const std::string& folder, const std::string& name, int64_t step, bool is_best) {
  try {
    CheckpointStore(folder, kPolicy).save(name, content_at(step), is_best);
  } catch (const Error& error) {
    return std::string(error.what()).starts_with(fs::path(folder).parent_path().string()) ? 3 : 4;
  }
  return 0;
}

/// The save that goes wrong. Its fsyncs do nothing: they matter when the power fails, not when a process is killed.
CallsOutcome save_with_fault(const std::string& folder, const Scenario& scenario, Fault fault) {
  fault.always["fsync"] = 0;
  if (!scenario.unsupported.empty()) fault.always[scenario.unsupported] = EINVAL;
  return run_with_fault([&] { return save(folder, scenario.name, 40, scenario.is_best); }, fault);
}

/// What the earlier saves of a scenario leave, to be copied.
class Before {
 public:
  explicit Before(const Scenario& scenario) {
    fs::create_directory(folder_ / "checkpoints");
    quickly([&] {
      for (const int64_t step : scenario.before) {
        save(folder_ / "checkpoints", "step-" + std::to_string(step), step, step == scenario.before.front());
      }
    });
    if (scenario.before.empty()) fs::remove(folder_ / "checkpoints");
  }
  void copy_to(const std::string& folder) const {
    fs::copy(folder_.path(), folder, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  }

 private:
  TemporaryFolder folder_;
};

std::vector<std::string> hidden_names(const std::string& folder) {
  std::vector<std::string> names;
  if (!fs::exists(folder)) return names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with('.')) names.push_back(name);
  }
  return names;
}

/// What must hold whatever befell a save.
void check_aftermath(const std::string& folder, const Scenario& scenario, bool saved) {
  const auto must_not_warn = [](const std::string& message) { FAIL_CHECK(message); };
  const int64_t last = scenario.before.empty() ? -1 : scenario.before.back();

  // Who only reads finds a whole checkpoint, unless there was none, or an exchange of names had to be done in two
  // steps.
  const auto read = CheckpointStore::find_newest(folder, must_not_warn);
  if (!scenario.before.empty() && scenario.unsupported.empty()) REQUIRE(read);

  CheckpointStore store(folder, kPolicy);
  const auto newest = store.newest(must_not_warn);
  if (!newest) {
    CHECK(scenario.before.empty());
    CHECK(!saved);
  } else {
    const int64_t step = step_of(CheckpointStore::load(*newest));
    CHECK((step == 40 || (step == last && !saved)));
    CHECK(step_of(CheckpointStore::load(folder + "/latest")) == step);
    const int64_t best = step_of(CheckpointStore::load(folder + "/best"));
    CHECK(best == (step == 40 && scenario.is_best ? 40 : scenario.name == "step-30" ? step : scenario.before.front()));
  }
  CHECK(hidden_names(folder).empty());

  // And training goes on.
  quickly([&] {
    store.save(scenario.name, content_at(40), scenario.is_best);
    store.save("step-50", content_at(50), false);
  });
  CHECK(step_of(CheckpointStore::load(folder + "/latest")) == 50);
  CHECK(hidden_names(folder).empty());
  CHECK(store.list().size() <= 3);
}

}  // namespace

TEST_CASE("a save killed before any of its system calls leaves a whole checkpoint, and nothing else") {
  for (const Scenario& scenario : scenarios()) {
    CAPTURE(scenario.what);
    const Before before(scenario);
    for (int i = 0;; i += kEveryKill) {
      const TemporaryFolder folder;
      const std::string checkpoints = folder / "checkpoints";
      before.copy_to(folder.path());
      const CallsOutcome outcome = save_with_fault(checkpoints, scenario, {.kill_before = i});
      CAPTURE(i);
      if (!outcome.killed) {
        CHECK(outcome.exit_code == 0);
        check_aftermath(checkpoints, scenario, true);
        CHECK(i >= 25);
        break;  // the save has no more calls
      }
      CAPTURE(outcome.calls.back());
      check_aftermath(checkpoints, scenario, false);
    }
  }
}

TEST_CASE("a checkpoint whose state is amended has the old state or the new, wherever that is killed or fails") {
  const auto amend = [](const std::string& folder) {
    nlohmann::json state = content_at(30).state;
    state["evaluated"] = true;
    CheckpointStore(folder, kPolicy).amend("step-30", state, true);
    return 0;
  };
  const Before before({"", {10, 20, 30}, "", false, ""});
  for (const bool kills : {true, false}) {
    CAPTURE(kills);
    bool ended = false;
    for (int i = 0; !ended; i += kills ? kEveryKill : kEveryFailure) {
      CAPTURE(i);
      REQUIRE(i < 100);
      const TemporaryFolder folder;
      const std::string checkpoints = folder / "checkpoints";
      before.copy_to(folder.path());
      Fault fault{.kill_before = kills ? i : -1, .fail_at = kills ? -1 : i, .error_number = EIO};
      fault.always["fsync"] = 0;
      const CallsOutcome outcome = run_with_fault([&] { return amend(checkpoints); }, fault);
      ended = static_cast<int>(outcome.calls.size()) <= i;  // the fault came too late
      const auto must_not_warn = [](const std::string& message) { FAIL_CHECK(message); };
      const auto newest = CheckpointStore(checkpoints, kPolicy).newest(must_not_warn);
      REQUIRE(newest);
      const CheckpointContent content = CheckpointStore::load(*newest);
      CHECK(step_of(content) == 30);
      const bool is_new = content.state.contains("evaluated");
      if (ended) CHECK(is_new);
      CHECK(fs::read_symlink(checkpoints + "/best") == (is_new ? "step-30" : "step-10"));
      CHECK(hidden_names(checkpoints).empty());
      CHECK(hidden_names(checkpoints + "/step-30").empty());
    }
  }
}

TEST_CASE(
    "a large checkpoint, hashed by threads while it is written, is whole or was not made, wherever it is killed") {
  const auto content_of_step = [](int64_t step) {
    const at::Tensor values = at::full({3 << 19}, static_cast<float>(step));  // 6 MB
    return CheckpointContent{{{"weight", values}}, {{"weight.exp_avg", values}}, {{"step", step}}};
  };
  const TemporaryFolder before;
  quickly([&] { CheckpointStore(before / "checkpoints", kPolicy).save("step-30", content_of_step(30), true); });
  const CheckpointContent content = content_of_step(40);
  bool killed = true;
  for (int i = 0; killed; i += kEveryKill) {
    CAPTURE(i);
    REQUIRE(i < 100);
    const TemporaryFolder folder;
    const std::string checkpoints = folder / "checkpoints";
    fs::copy(before.path(), folder.path(), fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    Fault fault{.kill_before = i};
    fault.always["fsync"] = 0;
    const auto save = [&] {
      CheckpointStore(checkpoints, kPolicy).save("step-40", content, false);
      return 0;
    };
    killed = run_with_fault(save, fault).killed;
    CheckpointStore store(checkpoints, kPolicy);
    const auto newest = store.newest([](const std::string& message) { FAIL_CHECK(message); });
    REQUIRE(newest);
    const CheckpointContent found = CheckpointStore::load(*newest);
    const auto step = found.state["step"].get<int64_t>();
    CHECK((step == 40 || (step == 30 && killed)));
    CHECK(found.model[0].second.equal(content_of_step(step).model[0].second));
    CHECK(found.optimizer[0].second.equal(found.model[0].second));
    CHECK(hidden_names(checkpoints).empty());
  }
}

TEST_CASE("where either file of a large checkpoint cannot be written, that is the error, and nothing is left") {
  static std::string failing;
  const auto fail = [](int file) {
    const std::string path = fs::read_symlink("/proc/self/fd/" + std::to_string(file)).string();
    errno = EIO;
    return path.ends_with(failing) ? -1 : 0;
  };
  const at::Tensor values = at::ones({3 << 19});
  for (const char* name : {"model.safetensors", "optimizer.safetensors"}) {
    const TemporaryFolder folder;
    failing = name;
    test::instead_of_fsync = fail;
    const std::string text = test::message_of<Error>([&] {
      CheckpointStore(folder.path(), kPolicy).save("step-40", {{{"w", values}}, {{"w", values}}, {{"step", 40}}}, true);
    });
    test::instead_of_fsync = nullptr;
    CHECK(text.ends_with(std::string(name) + ": cannot sync to disk: Input/output error"));
    CHECK(fs::is_empty(folder.path()));
  }
}

TEST_CASE(
    "a save on a disk that is full or fails is an error that names the file, and the earlier checkpoint is there") {
  for (const Scenario& scenario : scenarios()) {
    CAPTURE(scenario.what);
    if (!scenario.unsupported.empty()) continue;
    const Before before(scenario);
    const TemporaryFolder whole;
    before.copy_to(whole.path());
    const size_t calls = save_with_fault(whole / "checkpoints", scenario, {}).calls.size();
    const size_t turns = std::getenv("TRAINRUN_LONG_TESTS") ? kSaveErrors.size() : 1;
    for (size_t turn = 0; turn < calls * turns; turn += kEveryFailure) {
      const size_t i = turn % calls;
      const TemporaryFolder folder;
      const std::string checkpoints = folder / "checkpoints";
      before.copy_to(folder.path());
      const Fault fault{.fail_at = static_cast<int>(i),
                        .error_number = kSaveErrors[(i + turn / calls) % kSaveErrors.size()]};
      const CallsOutcome outcome = save_with_fault(checkpoints, scenario, fault);
      CAPTURE(i);
      REQUIRE(i < outcome.calls.size());
      CAPTURE(outcome.calls[i]);
      const auto call = outcome.calls.begin() + static_cast<std::ptrdiff_t>(i);
      const auto named = std::find_if(outcome.calls.begin(), outcome.calls.end(),
                                      [](const std::string& name) { return name == "rename" || name == "exchange"; });
      // What was only read can be closed however it goes, and a link that is not there need not be removed. Once the
      // checkpoint has its name, an old one that cannot be looked at or removed stays.
      const bool may_be_ignored =
          *call == "close" || *call == "unlink" || (named < call && (*call == "openat" || *call == "rmdir"));
      CHECK((outcome.exit_code == 3 || (outcome.exit_code == 0 && may_be_ignored)));
      check_aftermath(checkpoints, scenario, outcome.exit_code == 0);
    }
  }
}

TEST_CASE(
    "a save syncs each file and folder before it gives the checkpoint its name, and that before it removes another") {
  const TemporaryFolder folder;
  const Scenario scenario = scenarios()[1];
  Before(scenario).copy_to(folder.path());
  const CallsOutcome outcome = save_with_fault(folder / "checkpoints", scenario, {});
  CHECK(outcome.exit_code == 0);
  const auto& calls = outcome.calls;
  const auto renamed = std::find(calls.begin(), calls.end(), "rename");
  CHECK(std::count(calls.begin(), renamed, "fsync") == 4);  // three files, and the folder that holds them
  const auto synced = std::find(renamed, calls.end(), "fsync");
  const auto removed = std::find(renamed, calls.end(), "rmdir");
  CHECK(synced < removed);
  CHECK(removed != calls.end());
}

}  // namespace trainrun
