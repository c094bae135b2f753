#include "runner/run/run_folder.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "registry/language/error.h"
#include "tests/doctest.h"
#include "tests/faults/system_calls.h"
#include "tests/support.h"
#include "tests/temporary_folder.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;
using Resume = RunFolder::Resume;
using test::contains;
using test::Strings;

/// Recipes are the same here if their files are.
RunFolder open(const std::string& path, const std::string& recipe = "seed: 1\n", Resume resume = Resume::kAuto) {
  const auto compare = [&](const std::string& found) { return RunFolder::Kinship{content_of(found) == recipe, ""}; };
  return RunFolder::open(path, {recipe}, compare, resume);
}

std::string opening_error(const std::string& path) {
  try {
    open(path);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("a new run gets its folder, with those above it, and its recipe") {
  const TemporaryFolder folder;
  const RunFolder run = open(folder / "runs/x");
  CHECK(run.path() == folder / "runs/x");
  CHECK(!run.continues());
  CHECK(run.notes().empty());
  CHECK(content_of(run.recipe_path()) == "seed: 1\n");
  CHECK(run.checkpoints_path() == folder / "runs/x/checkpoints");
}

TEST_CASE("an unfinished run of the same recipe goes on in its folder") {
  const TemporaryFolder folder;
  write_content(open(folder / "x").metrics_path(), "{}\n");
  fs::create_directories(folder / "x/checkpoints/epoch-0001");
  const RunFolder run = open(folder / "x");
  CHECK(run.path() == folder / "x");
  CHECK(run.continues());
  CHECK(run.notes() == Strings{"resumes the unfinished run in " + folder / "x"});
  CHECK(content_of(run.metrics_path()) == "{}\n");
}

TEST_CASE("a folder that holds anything else is left alone, and the run says where it goes instead") {
  const TemporaryFolder folder;
  const auto next = [&](const std::string& why) {
    const RunFolder run = open(folder / "x");
    CHECK(run.path() == folder / "x-2");
    CHECK(!run.continues());
    CHECK(run.notes() == Strings{folder / "x " + why + "; this one goes to " + folder / "x-2"});
    fs::remove_all(folder / "x-2");
  };
  open(folder / "x").finish("{}");
  CHECK(content_of(folder / "x/summary.json") == "{}");
  next("holds a finished run");
  fs::remove(folder / "x/summary.json");
  write_content(folder / "x/recipe.yaml", "seed: 2\n");
  fs::create_directories(folder / "x/checkpoints/epoch-0001");
  next("holds another run");
  fs::remove_all(folder / "x/checkpoints");
  fs::remove(folder / "x/recipe.yaml");
  fs::remove(folder / "x/.lock");
  write_content(folder / "x/notes.txt", "mine");
  next("holds other files");
  CHECK(std::distance(fs::directory_iterator(folder / "x"), {}) == 1);  // not even a lock was put there
  fs::remove_all(folder / "x");
  write_content(folder / "x", "a file");
  next("is not a folder");
  fs::remove(folder / "x");
  const RunFolder other = open(folder / "x");
  std::array<char, 256> host{};
  CHECK(::gethostname(host.data(), host.size()) == 0);
  next("is in use by process " + std::to_string(::getpid()) + " on " + host.data());
}

TEST_CASE("a run goes on in the first numbered folder that holds its unfinished self") {
  const TemporaryFolder folder;
  open(folder / "x").finish("{}");
  open(folder / "x", "seed: 2\n").finish("{}");
  CHECK(open(folder / "x").path() == folder / "x-3");
  CHECK(open(folder / "x").path() == folder / "x-3");
  CHECK(open(folder / "x").continues());
  CHECK(open(folder / "x").notes()[0] == folder / "x holds a finished run; this one goes to " + folder / "x-3");
  CHECK(open(folder / "x", "seed: 2\n").path() == folder / "x-4");
}

TEST_CASE("a run that stopped before it saved anything leaves its folder to the next start of its recipe") {
  for (const Resume resume : {Resume::kAuto, Resume::kNever}) {
    const TemporaryFolder folder;
    const Strings taken = {"takes over " + folder / "x, where this recipe's last run stopped before it saved anything"};
    write_content(open(folder / "x").metrics_path(), "{\"step\": 1, \"split\": \"train\"}\n");
    write_content(folder / "x/log.txt", "it failed");
    fs::create_directory(folder / "x/checkpoints");
    {
      const RunFolder run = open(folder / "x", "seed: 1\n", resume);
      CHECK(run.path() == folder / "x");
      CHECK(run.notes() == taken);
      CHECK(content_of(folder / "x/log.txt") == "it failed");
    }
    write_content(folder / "x/notes.txt", "mine");
    CHECK(open(folder / "x", "seed: 1\n", resume).notes() != taken);
    fs::remove(folder / "x/notes.txt");
    write_content(folder / "x/metrics.jsonl",
                  "{\"step\": 1, \"split\": \"train\"}\n{\"step\": 1, \"split\": \"eval\"}\n");
    CHECK(open(folder / "x", "seed: 1\n", resume).notes() != taken);
  }
}

TEST_CASE("another run that saved nothing is left alone, and the run says how to have its name") {
  const TemporaryFolder folder;
  const std::string goes = folder / "x holds another run; this one goes to " + folder / "x-2";
  const auto notes = [&] {
    const Strings found = open(folder / "x", "seed: 2\n").notes();
    fs::remove_all(folder / "x-2");
    return found;
  };
  {
    const RunFolder running = open(folder / "x");
    CHECK(notes() == Strings{goes});  // it may save something yet
  }
  CHECK(notes() == Strings{goes + "; it saved nothing, so `rm -r " + folder / "x` frees the name"});
  fs::create_directories(folder / "x/checkpoints/epoch-0001");
  CHECK(notes() == Strings{goes});
  fs::remove_all(folder / "x/checkpoints");
  write_content(folder / "x/notes.txt", "mine");
  CHECK(notes() == Strings{goes});
  open(folder / "it's");
  const std::string hint = "`rm -r -- '" + folder / "it'\\''s'` frees the name";
  CHECK(contains(open(folder / "it's", "seed: 2\n").notes()[0], hint));
}

TEST_CASE("resume: no always makes a new run") {
  const TemporaryFolder folder;
  open(folder / "x");
  fs::create_directories(folder / "x/checkpoints/epoch-0001");
  const RunFolder run = open(folder / "x", "seed: 1\n", Resume::kNever);
  CHECK(run.path() == folder / "x-2");
  CHECK(contains(run.notes()[0], "x holds an unfinished run, not to be resumed; this one goes to"));
}

TEST_CASE("an empty folder, and the trace of a process killed at its start, are as good as none") {
  const TemporaryFolder folder;
  fs::create_directory(folder / "x");
  CHECK(open(folder / "x").path() == folder / "x");
  fs::remove(folder / "x/recipe.yaml");
  write_content(folder / "x/.recipe.yaml.tmp-123", "see");
  CHECK(open(folder / "x").path() == folder / "x");
}

TEST_CASE("a recipe in the folder that cannot be read now stops the start, and nothing is begun beside it") {
  const TemporaryFolder folder;
  open(folder / "x");
  const auto broken = [](const std::string& path) -> RunFolder::Kinship { throw DataError(path + ": cannot read"); };
  CHECK_THROWS_AS(RunFolder::open(folder / "x", {"seed: 1\n"}, broken, Resume::kAuto), DataError);
  CHECK(!fs::exists(folder / "x-2"));
}

TEST_CASE("what differs and changes no numbers is noted, and recipe.yaml says it") {
  const TemporaryFolder folder;
  open(folder / "x");
  const auto compare = [](const std::string&) {
    return RunFolder::Kinship{true, "", {"dataloader.num_workers was 1 and is 2"}};
  };
  RunFolder run = RunFolder::open(folder / "x", {"seed: 1 # 2\n"}, compare, Resume::kAuto);
  CHECK(run.continues());
  CHECK(run.notes()[1] == "in this start, dataloader.num_workers was 1 and is 2");
  CHECK(content_of(run.recipe_path()) == "seed: 1\n");  // until it is known that the run goes on
  run.keep_changes();
  CHECK(content_of(run.recipe_path()) == "seed: 1 # 2\n");
}

TEST_CASE("a recipe that speaks of secrets is its owner's alone") {
  const TemporaryFolder folder;
  const auto compare = [](const std::string&) { return RunFolder::Kinship{}; };
  const RunFolder run = RunFolder::open(folder / "x", {"token: ${env:TOKEN}\n", true}, compare, Resume::kAuto);
  CHECK((fs::status(run.recipe_path()).permissions() & fs::perms::all) ==
        (fs::perms::owner_read | fs::perms::owner_write));
}

TEST_CASE("what a killed start left half-written goes, and nothing of a like name that is the user's") {
  const TemporaryFolder folder;
  open(folder / "x");
  for (const char* name : {".recipe.yaml.tmp-123", ".summary.json.tmp-9", ".metrics.jsonl.tmp-77"}) {
    write_content(folder / "x/" + name, "half");
  }
  const Strings own = {".recipe.yaml.tmp-mine", ".notes.tmp-12", "recipe.yaml.tmp-12", ".summary.json.tmp-"};
  for (const std::string& name : own) write_content(folder / "x/" + name, "mine");
  const RunFolder run = open(folder / "x");
  CHECK(run.continues());
  for (const std::string& name : own) CHECK(content_of(folder / "x/" + name) == "mine");
  CHECK(std::distance(fs::directory_iterator(folder / "x"), {}) == 2 + std::ssize(own));  // .lock, recipe.yaml
}

TEST_CASE("a lock that is a link, another name of a file, or no file is refused, and what it leads to stays") {
  const TemporaryFolder folder;
  write_content(folder / "precious", "mine");
  fs::create_directory(folder / "x");
  fs::create_symlink("../precious", folder / "x/.lock");
  CHECK(contains(opening_error(folder / "x"),
                 "x/.lock: cannot create the lock, which must be a plain file: Too many levels"));
  fs::remove(folder / "x/.lock");
  fs::create_hard_link(folder / "precious", folder / "x/.lock");
  CHECK(contains(opening_error(folder / "x"), "x/.lock is not a plain file of its own"));
  fs::remove(folder / "x/.lock");
  REQUIRE(::mkfifo((folder / "x/.lock").c_str(), 0600) == 0);
  CHECK(contains(opening_error(folder / "x"), "x/.lock is not a plain file of its own"));
  CHECK(content_of(folder / "precious") == "mine");
}

TEST_CASE("a folder that is removed or renamed while the run goes on is made whole") {
  const TemporaryFolder folder;
  RunFolder run = open(folder / "x");
  CHECK(!run.make_whole());
  fs::remove_all(folder / "x");
  CHECK(run.make_whole());
  CHECK(content_of(folder / "x/recipe.yaml") == "seed: 1\n");
  CHECK(!run.make_whole());
  CHECK(open(folder / "x").path() == folder / "x-2");  // it is held again
  fs::rename(folder / "x", folder / "moved");
  CHECK(run.make_whole());
  CHECK(fs::exists(folder / "x/recipe.yaml"));
  fs::remove_all(folder / "x");
  run.finish("{}");
  CHECK(fs::exists(folder / "x/recipe.yaml"));
  CHECK(fs::exists(folder / "x/summary.json"));
  fs::remove_all(folder / "x");
  const RunFolder other = open(folder / "x", "seed: 2\n");
  CHECK_THROWS_WITH_AS(run.make_whole(), doctest::Contains("is now in use by process"), Error);
}

TEST_CASE("slashes and dots at the end of output_dir do not end up inside the name") {
  const TemporaryFolder folder;
  const RunFolder first = open(folder / "x/");
  CHECK(first.path() == folder / "x");
  CHECK(open(folder / "x//").path() == folder / "x-2");
  CHECK(open(folder / "x/y/..").path() == folder / "x-2");
  CHECK(opening_error("") == "output_dir is empty; it names the folder in which the run lives");
}

TEST_CASE("a folder that cannot be made is an error that names it") {
  const TemporaryFolder folder;
  write_content(folder / "file", "");
  CHECK(contains(opening_error(folder / "file/x"), folder / "file/x: cannot "));
  CHECK(contains(opening_error(folder / "file/x"), "Not a directory"));
}

TEST_CASE("of processes that start at the same moment no two get the same folder") {
  const TemporaryFolder folder;
  constexpr int kProcesses = 8;
  int start[2];   // closed by the parent: go
  int report[2];  // a byte from each child: has its folder
  int finish[2];  // closed by the parent: let go of it
  for (int* gate : {start, report, finish}) REQUIRE(::pipe(gate) == 0);
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    char byte = 0;
    ::close(start[1]);
    ::close(finish[1]);
    int code = ::read(start[0], &byte, 1) == 0 ? 0 : 1;
    try {
      const RunFolder run = open(folder / "x");
      if (run.continues() || fs::exists(run.log_path())) code = 2;
      write_content(run.log_path(), "mine");
      if (::write(report[1], "x", 1) != 1 || ::read(finish[0], &byte, 1) != 0) code = 1;
    } catch (const std::exception&) {
      code = 3;
    }
    ::_exit(code);
  }
  ::close(report[1]);
  ::close(start[0]);
  ::close(start[1]);
  char byte = 0;
  for (int i = 0; i < kProcesses; ++i) CHECK(::read(report[0], &byte, 1) == 1);
  ::close(finish[0]);
  ::close(finish[1]);
  ::close(report[0]);
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }
  CHECK(std::distance(fs::directory_iterator(folder.path()), {}) == kProcesses);
}

TEST_CASE("a start killed before any of its system calls does not cost the folder") {
  for (int i = 0;; ++i) {
    CAPTURE(i);
    const TemporaryFolder folder;
    const auto start = [&] { return open(folder / "runs/x").continues() ? 1 : 0; };
    const CallsOutcome outcome = run_with_fault(start, {.kill_before = i, .always = {{"fsync", 0}}});
    const RunFolder run = open(folder / "runs/x");
    CHECK(run.path() == folder / "runs/x");
    CHECK(content_of(run.recipe_path()) == "seed: 1\n");
    if (!outcome.killed) {
      CHECK(outcome.exit_code == 0);
      CHECK(i > 10);
      break;
    }
  }
}

TEST_CASE("metrics of later steps and half a line go, the others stay byte for byte") {
  const TemporaryFolder folder;
  const std::string path = folder / "metrics.jsonl";
  CHECK(truncate_metrics(path, 5) == 0);
  CHECK(!fs::exists(path));
  const std::string kept =
      "{\"step\": 1, \"train/loss\": 0.5}\n{\"step\":5}\n{\"note\": \"no step\"}\n{\"step\": 5, \"split\": \"eval\"}\n";
  write_content(path, kept + "{\"step\": 6}\n{\"step\": 7}\n{\"step\": 8, \"train/lo");
  CHECK(truncate_metrics(path, 5) == 3);
  CHECK(content_of(path) == kept);
  CHECK(truncate_metrics(path, 5) == 0);
  CHECK(content_of(path) == kept);
  write_content(path, kept + "{\"step\": 5");
  CHECK(truncate_metrics(path, 5) == 1);
  CHECK(content_of(path) == kept);
  write_content(path, "{\"step\": 5}");
  CHECK(truncate_metrics(path, 5) == 0);
  CHECK(content_of(path) == "{\"step\": 5}\n");
  CHECK(truncate_metrics(path, 0) == 1);
  CHECK(content_of(path).empty());
}

TEST_CASE("the lines of an evaluation that is still due go, too") {
  const TemporaryFolder folder;
  const std::string path = folder / "metrics.jsonl";
  const std::string kept = "{\"step\": 4, \"split\": \"eval\"}\n{\"step\": 5, \"split\": \"train\"}\n";
  write_content(path, kept + "{\"step\": 5, \"split\": \"eval\"}\n{\"step\": 6, \"split\": \"train\"}\n");
  CHECK(truncate_metrics(path, 5, /*evaluation_due=*/true) == 2);
  CHECK(content_of(path) == kept);
}

TEST_CASE("metrics are truncated in one instant") {
  const std::string before = "{\"step\": 1}\n{\"step\": 2}\n{\"step\"";
  for (int i = 0;; ++i) {
    const TemporaryFolder folder;
    const std::string path = folder / "metrics.jsonl";
    write_content(path, before);
    const auto truncate = [&] { return truncate_metrics(path, 1) == 2 ? 0 : 1; };
    const CallsOutcome outcome = run_with_fault(truncate, {.kill_before = i, .always = {{"fsync", 0}}});
    const std::string after = content_of(path);
    CHECK((after == before || after == "{\"step\": 1}\n"));
    if (!outcome.killed) {
      CHECK(after == "{\"step\": 1}\n");
      break;
    }
  }
}

}  // namespace trainrun
