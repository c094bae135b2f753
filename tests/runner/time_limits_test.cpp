// What the clock decides: when a job ends, and when a checkpoint is made.
#include <csignal>

#include "tests/runner/training_support.h"

namespace trainrun {
namespace {

using namespace test;

/// A clock on which each batch of training takes a second and nothing else takes any.
class Clock {
 public:
  std::function<at::Tensor(const at::Tensor&, int64_t)> and_then(std::function<void(int64_t batch)> act = [](int64_t) {
  }) {
    return [this, act = std::move(act)](const at::Tensor& input, int64_t batch) {
      now_ += std::chrono::seconds(1);
      act(batch);
      return input;
    };
  }
  int train(const std::string& folder, Script& own, const std::vector<std::string>& overrides) {
    Catalog catalog = catalog_with();
    return train_in(folder, own, overrides, catalog, [this](Job& job) { job.clock = [this] { return now_; }; });
  }

 private:
  std::chrono::steady_clock::time_point now_;
};

const std::vector<std::string> kFiveSeconds = {"training={max_steps: 12, max_time: 5s}", "evaluation.every=4",
                                               "checkpoint={every: 4}"};

nlohmann::json summary_of(const std::string& folder) {
  return nlohmann::json::parse(content_of(folder + "/summary.json"));
}

}  // namespace

TEST_CASE("a job ends after the step in which max_time is over: saved, evaluated and done") {
  const TemporaryFolder folder;
  Clock clock;
  Script script;
  script.in_training = clock.and_then();
  CHECK(clock.train(folder / "run", script, kFiveSeconds) == 0);
  CHECK(script.lines.size() == 5);
  CHECK(script.checkpoints == std::vector<int64_t>{4, 5});
  REQUIRE(script.evaluations.size() == 2);
  CHECK(script.evaluations[1].step == 5);
  CHECK(script.reason.empty());
  CHECK(summary_of(folder / "run")["stopped"] == "training.max_time, 5s, is over");
}

TEST_CASE("a resumed job goes on counting, ends where the whole one ends, and goes on where max_time has grown") {
  const TemporaryFolder folder;
  Clock whole;
  Script script;
  script.in_training = whole.and_then();
  CHECK(whole.train(folder / "whole", script, kFiveSeconds) == 0);
  for (const int64_t step : {1, 3, 4}) {
    CAPTURE(step);
    const std::string run = folder / ("stopped-" + std::to_string(step));
    Clock first;
    Script stopped;
    stopped.in_training = first.and_then([step](int64_t batch) {
      if (batch == step) std::raise(SIGTERM);
    });
    CHECK(first.train(run, stopped, kFiveSeconds) == SIGTERM);
    Clock second;
    Script rest;
    rest.in_training = second.and_then();
    CHECK(second.train(run, rest, kFiveSeconds) == 0);
    check_same_outcome(run, folder / "whole");
  }
  Clock longer;
  Script more;
  more.in_training = longer.and_then();
  CHECK(longer.train(folder / "longer", more,
                     {"training={max_steps: 12, max_time: 0.15min}", "evaluation.every=4",
                      "checkpoint={every: 4, resume: " + (folder / "whole") + "}"}) == 0);
  CHECK(more.lines.size() == 4);  // steps 6 to 9
}

TEST_CASE("checkpoint.every may be a time, and the last state is saved as well") {
  const TemporaryFolder folder;
  Clock clock;
  Script script;
  script.in_training = clock.and_then();
  CHECK(clock.train(folder / "run", script,
                    {"training={max_steps: 12}", "evaluation.every=null", "checkpoint={every: 5s, keep_last: null}"}) ==
        0);
  CHECK(script.checkpoints == std::vector<int64_t>{5, 10, 12});
}

TEST_CASE("a time is a number and a unit") {
  CHECK(Duration::parse("30s")->seconds == 30);
  CHECK(Duration::parse("15min")->seconds == 900);
  CHECK(Duration::parse("1.5h")->seconds == 5400);
  for (const char* wrong : {"", "5", "s", "0s", "-1s", "1 h", "1d", "1.2.3s", "1e3s", "15mins"}) {
    CAPTURE(wrong);
    CHECK(!Duration::parse(wrong));
  }
}

}  // namespace trainrun
