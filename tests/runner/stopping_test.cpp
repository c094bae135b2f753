// Signals that come while a job trains, evaluates and saves: counted in batches, not in seconds.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include "tests/runner/training_support.h"

namespace trainrun {
namespace {

using namespace test;

/// Two epochs, evaluated and saved at their ends; 12 batches an evaluation.
const std::vector<std::string> kTwoEpochs = {"training={num_epochs: 2}", "dataloader.eval_batch_size=32",
                                             "checkpoint={keep_best: {monitor: eval/loss, mode: min}}"};

/// For tests that act between the instants at which a checkpoint and its evaluation are there.
constexpr const char* kAtOnce = "checkpoint.background=false";

std::vector<std::string> with_overrides(std::vector<std::string> overrides, const std::vector<std::string>& more) {
  overrides.insert(overrides.end(), more.begin(), more.end());
  return overrides;
}

/// Resumes and undisturbed runs must end alike.
void check_goes_on_as_undisturbed(const TemporaryFolder& folder, const std::vector<std::string>& overrides) {
  Script rest;
  CHECK(train_in(folder / "run", rest, overrides) == 0);
  Script whole;
  CHECK(train_in(folder / "undisturbed", whole, overrides) == 0);
  check_same_outcome(folder / "run", folder / "undisturbed");
}

auto raise_in_batch(int signal, int64_t wanted) {
  return [=](const at::Tensor& input, int64_t batch) {
    if (batch == wanted) std::raise(signal);
    return input;
  };
}

}  // namespace

TEST_CASE("a signal in the first step stops training after that step") {
  const TemporaryFolder folder;
  Script stopped;
  stopped.in_training = raise_in_batch(SIGTERM, 1);
  CHECK(train_in(folder / "run", stopped, kTwoEpochs) == SIGTERM);
  CHECK(stopped.training_batches == 1);
  CHECK(stopped.checkpoints == std::vector<int64_t>{1});
  CHECK(stopped.reason == "SIGTERM");
  check_goes_on_as_undisturbed(folder, kTwoEpochs);
}

TEST_CASE("a signal within an accumulation window gives the window up, and nothing of it is left") {
  const TemporaryFolder folder;
  const auto overrides = with_overrides(kTwoEpochs, {"training={num_epochs: 2, gradient_accumulation_steps: 10}"});
  for (const int64_t batch : {4, 13, 45}) {  // in the first, the second, and a last one of five
    Script stopped;
    stopped.in_training = raise_in_batch(SIGTERM, batch);
    CHECK(train_in(folder / "run", stopped, overrides) == SIGTERM);
    CHECK(stopped.training_batches == batch);
    if (batch == 4) CHECK(stopped.checkpoints.empty());  // there is nothing to save
    if (batch == 13) CHECK(stopped.checkpoints == std::vector<int64_t>{1});
  }
  check_goes_on_as_undisturbed(folder, overrides);
}

TEST_CASE("an epoch is saved before it is evaluated, and a signal ends the evaluation before its next batch") {
  const TemporaryFolder folder;
  for (const int64_t batch : {1, 5}) {
    Script stopped;
    stopped.in_evaluation = raise_in_batch(SIGTERM, batch);
    CHECK(train_in(folder / "run", stopped, kTwoEpochs) == SIGTERM);
    CHECK(stopped.evaluation_batches == batch);
    CHECK(stopped.training_batches == (batch == 1 ? 45 : 0));  // the second start begins with the evaluation
    CHECK(stopped.evaluations.empty());
    CHECK(state_of(folder / "run/checkpoints/epoch-0001")["evaluation_due"] == true);
    CHECK_FALSE(std::filesystem::exists(folder / "run/checkpoints/best"));
  }
  check_goes_on_as_undisturbed(folder, kTwoEpochs);
  CHECK(state_of(folder / "run/checkpoints/epoch-0001")["evaluation_due"] == false);
}

TEST_CASE("a signal in the job's last evaluation leaves it to the next start, which then is done") {
  const TemporaryFolder folder;
  Script stopped;
  stopped.in_evaluation = raise_in_batch(SIGINT, 20);  // of twice 12
  CHECK(train_in(folder / "run", stopped, kTwoEpochs) == SIGINT);
  CHECK(stopped.training_batches == 90);
  CHECK_FALSE(std::filesystem::exists(folder / "run/summary.json"));
  check_goes_on_as_undisturbed(folder, kTwoEpochs);
  CHECK(std::filesystem::exists(folder / "run/summary.json"));
}

TEST_CASE("a signal during a checkpoint stops the job when it is whole, before its evaluation") {
  const TemporaryFolder folder;
  Script stopped;
  stopped.at_checkpoint = [](const std::string&) { std::raise(SIGTERM); };
  CHECK(train_in(folder / "run", stopped, with_overrides(kTwoEpochs, {kAtOnce})) == SIGTERM);
  CHECK(stopped.training_batches == 45);
  CHECK(stopped.evaluation_batches == 0);
  check_goes_on_as_undisturbed(folder, kTwoEpochs);
}

TEST_CASE("a signal as the job finishes comes too late to stop it") {
  const TemporaryFolder folder;
  Script done;
  done.at_evaluation_line = [](int64_t step) {
    if (step == 90) std::raise(SIGTERM);
  };
  CHECK(train_in(folder / "run", done, kTwoEpochs) == 0);
  CHECK(std::filesystem::exists(folder / "run/summary.json"));
}

TEST_CASE("evaluations that fall between checkpoints are caught up as well, and `best` is right after each resume") {
  const TemporaryFolder folder;
  const std::vector<std::string> overrides = {
      "training={max_steps: 60}", "dataloader.eval_batch_size=64", "evaluation.every=9",
      "scheduler={type: ReduceLROnPlateau, patience: 0, factor: 0.7, threshold: 0.2}",
      "checkpoint={every: 4, keep_last: 2, keep_best: {monitor: eval/loss, mode: min}}"};
  for (const int64_t evaluation : {2, 3, 3}) {  // of this start
    Script stopped;
    stopped.in_evaluation = raise_in_batch(SIGTERM, evaluation * 6 - 3);  // each has six batches
    CHECK(train_in(folder / "run", stopped, overrides) == SIGTERM);
    CHECK(state_of(folder / "run/checkpoints/latest")["evaluation_due"] == true);
  }
  Script rest;
  CHECK(train_in(folder / "run", rest, overrides) == 0);
  Script whole;
  CHECK(train_in(folder / "undisturbed", whole, overrides) == 0);
  check_same_outcome(folder / "run", folder / "undisturbed");
}

TEST_CASE(
    "what ends a run between a checkpoint and its evaluation, or before the checkpoint says so, changes nothing") {
  namespace fs = std::filesystem;
  struct Crash : std::exception {};
  for (const bool after_evaluation : {false, true}) {
    CAPTURE(after_evaluation);
    const TemporaryFolder folder;
    Script killed;
    if (after_evaluation) {  // metrics.jsonl has its line already; what a kill would leave is put aside
      killed.at_evaluation_line = [&](int64_t) {
        const auto options = fs::copy_options::recursive | fs::copy_options::copy_symlinks;
        if (fs::exists(folder / "left")) return;
        fs::create_directory(folder / "left");
        for (const auto& entry : fs::directory_iterator(folder / "run")) {
          if (!entry.is_socket()) fs::copy(entry.path(), fs::path(folder / "left") / entry.path().filename(), options);
        }
      };
      CHECK(train_in(folder / "run", killed, with_overrides(kTwoEpochs, {kAtOnce})) == 0);
      fs::remove_all(folder / "run");
      fs::rename(folder / "left", folder / "run");
    } else {
      killed.in_evaluation = [](const at::Tensor&, int64_t) -> at::Tensor { throw Crash(); };
      CHECK_THROWS(train_in(folder / "run", killed, kTwoEpochs));
    }
    CHECK(state_of(folder / "run/checkpoints/latest")["evaluation_due"] == true);
    check_goes_on_as_undisturbed(folder, kTwoEpochs);
  }
}

TEST_CASE("SIGUSR1 and SIGHUP save after the step, or within an evaluation, and training goes on to the same end") {
  const TemporaryFolder folder;
  Script saved;
  saved.in_training = [](const at::Tensor& input, int64_t batch) {
    if (batch == 7) std::raise(SIGUSR1);
    if (batch == 11) std::raise(SIGHUP);
    return input;
  };
  const auto overrides = with_overrides(kTwoEpochs, {"evaluation.every=30"});
  saved.in_evaluation = raise_in_batch(SIGUSR1, 3);  // after step 30, where no checkpoint is due
  CHECK(train_in(folder / "run", saved, overrides) == 0);
  const std::vector<int64_t> expected = {7, 11, 30, 45, 60, 90};
  CHECK(std::vector<int64_t>(saved.checkpoints.begin(), saved.checkpoints.begin() + 4) ==
        std::vector<int64_t>(expected.begin(), expected.begin() + 4));
  Script whole;
  CHECK(train_in(folder / "undisturbed", whole, overrides) == 0);
  check_same_outcome(folder / "run", folder / "undisturbed");
}

TEST_CASE("a closed standard output is a reason to save and go on") {
  const TemporaryFolder folder;
  Script saved;
  saved.in_training = [](const at::Tensor& input, int64_t batch) {
    if (batch == 7) StopSignals::request_save(SIGPIPE);
    return input;
  };
  CHECK(train_in(folder / "run", saved, kTwoEpochs) == 0);
  CHECK(saved.checkpoints.front() == 7);
  CHECK(content_of(folder / "run/log.txt").find("standard output is closed; training continues") != std::string::npos);
}

TEST_CASE("signals that follow the first within a second change nothing; later ones are no repetition") {
  const TemporaryFolder folder;
  Script stopped;
  stopped.in_training = [](const at::Tensor& input, int64_t batch) {
    if (batch == 3) std::raise(SIGTERM), std::raise(SIGTERM), std::raise(SIGINT);
    return input;
  };
  CHECK(train_in(folder / "run", stopped, kTwoEpochs) == SIGTERM);
  CHECK(stopped.checkpoints == std::vector<int64_t>{3});
  CHECK(StopSignals::is_repetition(0));
  CHECK(StopSignals::is_repetition(999'999'999));
  CHECK_FALSE(StopSignals::is_repetition(1'000'000'000));
}

TEST_CASE("before training begins a signal ends the program at once, and one that asks to save does not") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  if (child == 0) {  // does what is safe after a fork
    ::dup2(ends[1], STDERR_FILENO);
    const StopSignals signals;
    std::raise(SIGUSR1);
    std::raise(SIGHUP);
    std::raise(SIGPIPE);
    std::raise(SIGTERM);
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 128 + SIGTERM);
  std::array<char, 200> said{};
  const ssize_t size = ::read(ends[0], said.data(), said.size());
  CHECK(std::string(said.data(), static_cast<size_t>(size)) ==
        "trainrun: stopped at once by SIGTERM, before the first step; there was nothing to save\n");
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_CASE("without checkpoints a signal still stops the job at once") {
  const TemporaryFolder folder;
  Script stopped;
  stopped.in_training = raise_in_batch(SIGTERM, 3);
  CHECK(train_in(folder / "run", stopped, {"checkpoint={every: null}", "evaluation.every=null"}) == SIGTERM);
  CHECK(stopped.training_batches == 3);
  CHECK(stopped.checkpoints.empty());
}

}  // namespace trainrun
