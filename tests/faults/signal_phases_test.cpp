// SIGTERM at the system calls of a whole job, one after the other: from its start-up through data, steps, evaluations
// and checkpoints to its end.
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "registry/formats/files/file_io.h"
#include "tests/doctest.h"
#include "tests/faults/system_calls.h"
#include "tests/temporary_folder.h"

namespace trainrun {
namespace {

/// A job of 12 steps in two epochs, each evaluated and saved; accumulation windows of two batches.
std::vector<std::string> command(const std::string& folder) {
  const char* binary = std::getenv("TRAINRUN_BINARY");
  return {binary ? binary : "build/dev/bin/trainrun",
          "tests/recipes/digits_small.yaml",
          "output_dir=" + folder,
          "model.layers=[Flatten, {type: Dropout, p: 0.2}, {type: Linear, out_features: 10}]",
          "dataloader={batch_size: 120, eval_batch_size: 120, num_workers: 0}",
          "training={num_epochs: 2, gradient_accumulation_steps: 2}",
          "logging.every_steps=1",
          "checkpoint={every: 5, keep_last: 2, keep_best: {monitor: eval/loss, mode: min}}"};
}

CallsOutcome run(const std::string& folder, const Fault& fault, bool in_background = true) {
  const auto work = [&] {
    std::signal(SIGTERM, SIG_DFL);  // doctest has a handler
    const int nowhere = ::open("/dev/null", O_WRONLY);
    ::dup2(nowhere, STDOUT_FILENO);
    ::dup2(nowhere, STDERR_FILENO);
    std::vector<std::string> words = command(folder);
    words.push_back(in_background ? "checkpoint.background=true" : "checkpoint.background=false");
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    ::execv(arguments[0], arguments.data());
    return 127;
  };
  return run_with_fault(work, fault);
}

std::string weights_in(const std::string& folder) {
  return digest_file(folder + "/checkpoints/latest/model.safetensors").sha256;
}

/// The calls to interrupt: all, where TRAINRUN_EVERY_CALL is set, else so many, evenly spread.
std::vector<int> chosen_calls(size_t num_calls) {
  const size_t wanted = std::getenv("TRAINRUN_EVERY_CALL") ? num_calls : 12;
  std::vector<int> chosen;
  for (size_t i = 0; i < wanted; ++i) chosen.push_back(static_cast<int>(i * num_calls / wanted));
  return chosen;
}

}  // namespace

TEST_CASE(
    "SIGTERM at any system call of a job ends it in order, and the same command ends as if nothing had happened") {
  const TemporaryFolder folder;
  const CallsOutcome whole = run(folder / "whole", {}, false);  // the writer's own thread is not traced
  REQUIRE(whole.exit_code == 0);
  REQUIRE(whole.calls.size() > 100);
  const std::string expected = weights_in(folder / "whole");
  int stopped = 0;
  for (const int call : chosen_calls(whole.calls.size())) {
    CAPTURE(call);
    CAPTURE(whole.calls[static_cast<size_t>(call)]);
    const std::string own = folder / std::to_string(call);
    const CallsOutcome outcome = run(own, {.signal_at = call}, call % 2 == 0);
    const bool before_handlers = outcome.killed;  // while the program is being loaded
    CHECK((before_handlers || outcome.exit_code == 128 + SIGTERM || outcome.exit_code == 0));
    stopped += outcome.exit_code == 128 + SIGTERM ? 1 : 0;
    if (outcome.exit_code == 0) {  // the job was done already
      CHECK(std::filesystem::exists(own + "/summary.json"));
    } else {
      CHECK(run(own, {}).exit_code == 0);
    }
    CHECK(weights_in(own) == expected);
  }
  CHECK(stopped > 0);
}

}  // namespace trainrun
