// Kills a resume, and has it refused, at each of its system calls in turn; damages what it reads in every way.
//
// Each call is refused with one of the errors, in turn; with TRAINRUN_LONG_TESTS=1 in the environment, with each of
// them.
#include <ATen/ATen.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runner/recipe/recipe_source.h"
#include "runner/run/checkpoint_store.h"
#include "runner/run/run_folder.h"
#include "runner/run/run_identity.h"
#include "tests/doctest.h"
#include "tests/faults/fsync.h"
#include "tests/faults/support.h"
#include "tests/faults/system_calls.h"
#include "tests/sanitizers.h"
#include "tests/temporary_folder.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;
using test::content_at;
using test::quickly;

constexpr const char* kRecipe = "seed: 1\n";
constexpr std::array kResumeErrors = {EIO, EMFILE, ESTALE, EACCES, ENOMEM};
constexpr int64_t kNewest = 30;
constexpr size_t kEveryCall =
    test::kIsSanitized ? 5 : 1;  // calls that follow each other do much the same with what they get

bool is_long() { return std::getenv("TRAINRUN_LONG_TESTS") != nullptr; }

std::string name_of(int64_t step) { return "step-" + std::to_string(step); }

RunFolder open_run(const std::string& path) {
  const auto compare = [](const std::string& recipe) {
    const ResolvedRecipe found = resolve_recipe(recipe, {});
    if (!found.unreadable.empty()) throw Error(found.unreadable);
    const Value now = Value::map({{"seed", {}, Value::scalar("1", false, {})}}, {});
    return RunFolder::Kinship{compare_recipes(found.value, now, false).numbers.empty(), ""};
  };
  return RunFolder::open(path, {kRecipe}, compare, RunFolder::Resume::kAuto);
}

/// What an unfinished run of three checkpoints left; the first is the best.
void make_run(const std::string& folder) {
  quickly([&] {
    const RunFolder run = open_run(folder + "/x");
    CheckpointStore store(run.checkpoints_path(), {});
    for (const int64_t step : {10, 20, 30}) store.save(name_of(step), content_at(step), step == 10);
    write_content(run.metrics_path(), "{\"step\": 10}\n{\"step\": 30}\n{\"step\": 31}\n{\"st");
  });
}

enum Resumed { kWhole = 0, kBegunAnew = 5, kOlder = 6, kAnotherFolder = 7, kRefused = 8 };

/// As Job::resume: the folder, its newest checkpoint, the figures.
int resume(const std::string& folder) {
  try {
    const RunFolder run = open_run(folder + "/x");
    if (run.path() != folder + "/x") return kAnotherFolder;
    if (!run.continues()) return kBegunAnew;
    const auto from = CheckpointStore(run.checkpoints_path(), {}).newest([](const std::string&) {});
    if (!from) return kBegunAnew;
    const auto step = CheckpointStore::load(*from).state["step"].get<int64_t>();
    truncate_metrics(run.metrics_path(), step);
    return step == kNewest ? kWhole : kOlder;
  } catch (const std::exception&) {  // also std::bad_alloc and what std::filesystem throws
    return kRefused;
  }
}

std::map<std::string, std::string> checkpoints_of(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder + "/x/checkpoints")) {
    if (entry.is_regular_file()) files[entry.path().lexically_relative(folder).string()] = content_of(entry.path());
  }
  return files;
}

void check_next_resume_is_whole(const std::string& folder) {
  CHECK(quickly([&] { return resume(folder); }) == kWhole);
  CHECK(content_of(folder + "/x/metrics.jsonl") == "{\"step\": 10}\n{\"step\": 30}\n");
  CHECK(fs::read_symlink(folder + "/x/checkpoints/latest") == name_of(kNewest));
  CHECK(!fs::exists(folder + "/x-2"));
}

}  // namespace

TEST_CASE("a resume that the system refuses something, once, stops or goes on with all there was") {
  const TemporaryFolder original;
  make_run(original.path());
  const auto before = checkpoints_of(original.path());
  const auto copy_to = [&](const TemporaryFolder& folder) {
    fs::copy(original.path(), folder.path(), fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  };
  const TemporaryFolder first;
  copy_to(first);
  check_next_resume_is_whole(first.path());  // what a process reads once is read, before the calls are counted
  const TemporaryFolder undisturbed;
  copy_to(undisturbed);
  const auto resume_there = [&] { return resume(undisturbed.path()); };
  const size_t calls = run_with_fault(resume_there, {.always = {{"fsync", 0}}, .reads = true}).calls.size();
  int refused = 0;
  for (size_t i = 0; i < calls; i += kEveryCall) {
    for (size_t turn = 0; turn < (is_long() ? kResumeErrors.size() : 1); ++turn) {
      const int error = kResumeErrors[(i + turn) % kResumeErrors.size()];
      const TemporaryFolder folder;
      copy_to(folder);
      const Fault fault{.fail_at = static_cast<int>(i), .error_number = error, .always = {{"fsync", 0}}, .reads = true};
      const CallsOutcome outcome = run_with_fault([&] { return resume(folder.path()); }, fault);
      CAPTURE(i);
      CAPTURE(error);
      REQUIRE(i < outcome.calls.size());
      CAPTURE(outcome.calls[i]);
      CHECK((outcome.exit_code == kWhole || outcome.exit_code == kRefused));
      refused += outcome.exit_code == kRefused ? 1 : 0;
      CHECK(checkpoints_of(folder.path()) == before);
      check_next_resume_is_whole(folder.path());
    }
  }
  CHECK(calls > 100);
  CHECK(refused > 50 / static_cast<int>(kEveryCall));
}

TEST_CASE("a resume killed before any of its system calls can be done again") {
  const TemporaryFolder original;
  make_run(original.path());
  fs::create_directory(original / "x/checkpoints/.step-40.tmp-4711");  // so that it has something to remove
  fs::remove(original / "x/checkpoints/latest");
  int kills = 0;
  for (size_t i = 0;; i += kEveryCall) {
    const TemporaryFolder folder;
    fs::copy(original.path(), folder.path(), fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    const CallsOutcome outcome = run_with_fault([&] { return resume(folder.path()); },
                                                {.kill_before = static_cast<int>(i), .always = {{"fsync", 0}}});
    CAPTURE(i);
    check_next_resume_is_whole(folder.path());
    CHECK(!fs::exists(folder / "x/checkpoints/.step-40.tmp-4711"));
    if (!outcome.killed) break;
    ++kills;
  }
  CHECK(kills > 20 / static_cast<int>(kEveryCall));
}

TEST_CASE("whatever is damaged, what is whole is used, and where nothing is, nothing is begun") {
  const std::vector<std::function<void(const std::string&)>> damages = {
      [](const std::string& path) { fs::remove(path); },
      [](const std::string& path) { write_content(path, ""); },
      [](const std::string& path) { write_content(path, content_of(path) + "x"); },
      [](const std::string& path) { write_content(path, content_of(path).substr(0, fs::file_size(path) / 2)); },
      [](const std::string& path) {
        std::string content = content_of(path);
        content[content.size() - 5] = static_cast<char>(content[content.size() - 5] ^ 1);
        write_content(path, content);
      },
      [](const std::string& path) {
        fs::remove(path);
        fs::create_directory(path);
      },
      [](const std::string& path) {
        fs::remove(path);
        fs::create_symlink("nowhere", path);
      }};
  const TemporaryFolder original;
  make_run(original.path());
  for (size_t i = 0; i < damages.size(); ++i) {
    for (const char* file : {"state.json", "model.safetensors", "optimizer.safetensors"}) {
      CAPTURE(i);
      CAPTURE(file);
      const TemporaryFolder folder;
      fs::copy(original.path(), folder.path(), fs::copy_options::recursive | fs::copy_options::copy_symlinks);
      const auto damage = [&](int64_t step) { damages[i](folder / "x/checkpoints/" + name_of(step) + "/" + file); };
      damage(30);
      CHECK(resume(folder.path()) == kOlder);
      damage(20);
      CHECK(resume(folder.path()) == kOlder);
      damage(10);
      CHECK(resume(folder.path()) == kRefused);
      CHECK(!fs::exists(folder / "x-2"));
    }
  }
}

}  // namespace trainrun
