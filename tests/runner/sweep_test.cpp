#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "registry/language/error.h"
#include "runner/sweep/halving.h"
#include "runner/sweep/importance.h"
#include "runner/sweep/journal.h"
#include "runner/sweep/sampler.h"
#include "runner/sweep/search_space.h"
#include "runner/sweep/sweep_state.h"
#include "tests/doctest.h"
#include "tests/support.h"
#include "tests/temporary_folder.h"

namespace trainrun {
namespace {

std::string fault_of(const std::vector<std::string>& arguments) {
  try {
    parse_search_space(arguments);
  } catch (const RecipeError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("values of a sweep are read from the command line, and other keys stay as they are") {
  const SearchSpace space =
      parse_search_space({"optimizer.lr=log(1e-5, 1e-3)", "dataloader.batch_size=32", "seed=1..3",
                          "model.layers[0].out_features=[64, 128]", "optimizer.betas=[[0.9, 0.99], [0.8, 0.9]]",
                          "training.max_grad_norm=uniform(0.5,2)", "model.layers[1].num=logint(1,64)"});
  REQUIRE(space.dimensions.size() == 6);
  CHECK(space.dimensions[0].words() == "log(1e-05, 0.001)");
  CHECK(space.dimensions[1].words() == "1..3");
  CHECK(space.dimensions[2].words() == "[64, 128]");
  CHECK(space.dimensions[3].choices == std::vector<std::string>{"[0.9, 0.99]", "[0.8, 0.9]"});
  CHECK(!space.grid_size());
  const auto overrides = space.overrides({2e-4, 3, 1, 0, 1, 8});
  CHECK(overrides == std::vector<std::string>{"optimizer.lr=2e-04", "dataloader.batch_size=32", "seed=3",
                                              "model.layers[0].out_features=128", "optimizer.betas=[0.9, 0.99]",
                                              "training.max_grad_norm=1", "model.layers[1].num=8"});
}

TEST_CASE("a list of one item is one value") {
  const SearchSpace space =
      parse_search_space({"callbacks=[{type: EMA, decay: 0.9}]", "a.betas=[[0.9, 0.99]]", "b=[]"});
  CHECK(space.dimensions.empty());
  CHECK(space.arguments ==
        std::vector<std::string>{"callbacks=[{type: EMA, decay: 0.9}]", "a.betas=[0.9, 0.99]", "b=[]"});
}

TEST_CASE("a grid has each point once, the last key the fastest") {
  const SearchSpace space = parse_search_space({"seed=4..5", "loss=[a, b, c]"});
  REQUIRE(space.grid_size() == 6);
  std::vector<std::string> points;
  for (int64_t i = 0; i < 6; ++i) points.push_back(join(space.overrides(space.grid_point(i)), " "));
  CHECK(points == std::vector<std::string>{"seed=4 loss=a", "seed=4 loss=b", "seed=4 loss=c", "seed=5 loss=a",
                                           "seed=5 loss=b", "seed=5 loss=c"});
  CHECK(space.points_to_check(6).size() == 6);
  CHECK(space.points_to_check(5).size() == 1 + 1 + 2);  // the first, the other end of seed, the other losses
}

TEST_CASE("faults of a sweep's values have their place") {
  CHECK(fault_of({"seed=1..3", "a.b=log(0,1)"}) ==
        "command line:2:5: a.b: the bounds of a logarithmic range are to be above 0");
  CHECK(fault_of({"a=log(1)"}) == "command line:1:3: a: expected two bounds, as in log(1e-5, 1e-3)");
  CHECK(fault_of({"a=uniform(1, x)"}) == "command line:1:3: a: 'x' is not a number");
  CHECK(fault_of({"a=uniform(2, 1)"}) == "command line:1:3: a: the lower bound comes first");
  CHECK(fault_of({"a=int(1, 2.5)"}) == "command line:1:3: a: the bounds are to be whole numbers");
  CHECK(fault_of({"a=[1, 1]"}) == "command line:1:3: a: a value is given twice");
  CHECK(fault_of({"a=[1,, 2]"}) == "command line:1:3: a: a value is missing between the commas");
  CHECK(fault_of({"a=[(1, 2]"}) ==
        "command line:1:3: a: brackets or quotes do not match; write [64, 128], or [[1, 2], [3, 4]]");
  CHECK(fault_of({"a=[1, 2]", "a=1..2"}) == "command line:2:1: a: is given twice");
  for (const char* folder : {"output_dir=[a, b]", "output_dir=runs/mine"}) {
    CHECK(fault_of({folder}).find("--output FOLDER") != std::string::npos);
  }
  CHECK(fault_of({"seed"}) == "command line:1:1: 'seed' has no '='; write key=value");
}

TEST_CASE("random points lie within the bounds, fill them evenly, and follow from the seed and the number alone") {
  const SearchSpace space = parse_search_space({"a=log(1e-4,1e-1)", "b=1..4", "c=[x,y]", "d=logint(1,100)"});
  std::vector<int> decades(3), numbers(5), choices(2);
  constexpr int kDrawn = 3000;
  for (int64_t i = 0; i < kDrawn; ++i) {
    TrialRandom random(7, i), again(7, i);
    const Point point = random_point(space, random);
    CHECK(point == random_point(space, again));
    REQUIRE(point[0] >= 1e-4);
    REQUIRE(point[0] <= 1e-1);
    ++decades[static_cast<size_t>(std::clamp(std::floor(std::log10(point[0]) + 4), 0.0, 2.0))];
    ++numbers.at(static_cast<size_t>(point[1]));
    ++choices.at(static_cast<size_t>(point[2]));
    REQUIRE(point[3] >= 1);
    REQUIRE(point[3] <= 100);
  }
  constexpr double kFourSigma = 4 * 28;  // of a share of 3000, at most
  for (const int count : decades) CHECK(std::abs(count - kDrawn / 3.0) < kFourSigma);
  for (int value = 1; value <= 4; ++value)
    CHECK(std::abs(numbers[static_cast<size_t>(value)] - kDrawn / 4.0) < kFourSigma);
  for (const int count : choices) CHECK(std::abs(count - kDrawn / 2.0) < kFourSigma);
}

TEST_CASE("the estimator comes nearer to a minimum than random points do") {
  const SearchSpace space = parse_search_space({"x=uniform(-5,5)", "y=log(1e-5,1e-1)", "c=[bad,good]"});
  const auto loss = [](const Point& point) {
    return std::pow(point[0] - 1, 2) + std::pow(std::log10(point[1]) + 3, 2) + (point[2] == 1 ? 0 : 3);
  };
  double by_estimate = 0, by_chance = 0;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    std::vector<Observation> observations;
    double best = INFINITY, best_random = INFINITY;
    for (int64_t number = 0; number < 60; ++number) {
      TrialRandom random(seed, number), other(seed + 100, number);
      const Point point = tpe_point(space, observations, random);
      observations.push_back({number, point, loss(point)});
      best = std::min(best, loss(point));
      best_random = std::min(best_random, loss(random_point(space, other)));
    }
    by_estimate += best / 10;
    by_chance += best_random / 10;
  }
  CHECK(by_estimate < by_chance / 2);
}

TEST_CASE("trials that run are avoided, and ones that failed to be a number do not count") {
  const SearchSpace space = parse_search_space({"x=uniform(0,1)"});
  std::vector<Observation> observations;
  for (int64_t i = 0; i < 20; ++i) {
    const double x = static_cast<double>(i) / 19;
    observations.push_back({i, {x}, std::abs(x - 0.5)});
  }
  const double before = tpe_excess(space, observations, {0.5});
  std::vector<Observation> with_running = observations;
  for (int64_t i = 20; i < 25; ++i) with_running.push_back({i, {0.5}, std::nullopt});
  CHECK(tpe_excess(space, with_running, {0.5}) < before);
  std::vector<Observation> with_nan = observations;
  with_nan.push_back({20, {0.5}, NAN});
  TrialRandom random(1, 21), again(1, 21);
  CHECK(tpe_point(space, with_nan, random) == tpe_point(space, observations, again));
}

TEST_CASE("of the trials at a rung the best third goes on, the highest rung first") {
  Halving halving({10, 3, false});
  CHECK(halving.steps_of(0) == 10);
  CHECK(halving.steps_of(3) == 270);
  CHECK(halving.steps_of(60) == INT64_MAX);
  halving.note(0, 0, 0.5);
  halving.note(1, 0, 0.4);
  halving.note(9, 0, NAN);
  CHECK(!halving.next());  // a third of two is none
  CHECK(!halving.goes_on(9, 0));
  halving.note(2, 0, 0.9);
  REQUIRE(halving.next());
  CHECK(halving.next()->trial == 1);
  halving.note_promoted(1, 0);
  CHECK(!halving.next());
  halving.note(1, 1, 0.3);
  for (int64_t trial = 3; trial < 6; ++trial) halving.note(trial, 0, 0.1 * static_cast<double>(trial));
  REQUIRE(halving.next());  // two of six: trial 3 (0.3), then, of those equal, the first
  CHECK(halving.next()->trial == 3);
  halving.note_promoted(3, 0);
  CHECK(!halving.next());  // 1 is the second best, and was promoted
}

TEST_CASE("a journal that a process of a killed sweep still holds is had as soon as that process is gone") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/journal.jsonl";
  const pid_t starting = [&] {
    const Journal killed(path);
    const pid_t child = ::fork();  // has what a trial has between fork and exec: the descriptor that is locked
    if (child == 0) {
      ::poll(nullptr, 0, 200);
      ::_exit(0);
    }
    return child;
  }();
  CHECK_NOTHROW(Journal{path});
  ::waitpid(starting, nullptr, 0);
}

TEST_CASE("a journal without its last half line is read, a line in its middle that is damaged is named") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/journal.jsonl";
  {
    Journal journal(path);
    journal.append({{"event", "number"}, {"number", 0}, {"trial", 3}});
    CHECK_THROWS_WITH_AS(Journal{path}, doctest::Contains("another process runs this sweep"), Error);
  }
  std::ofstream(path, std::ios::app) << R"({"event": "num)";
  {
    Journal journal(path);
    CHECK(journal.entries().size() == 1);
    journal.append({{"event", "number"}, {"number", 1}, {"trial", 4}});
  }
  CHECK(Journal::read(path).size() == 2);
  std::ofstream(path, std::ios::app) << "nonsense\n";
  CHECK_THROWS_WITH_AS(Journal::read(path), doctest::Contains("journal.jsonl:3: "), DataError);
}

TEST_CASE("where a sweep stands follows from its journal; another sweep's trials are found again by their digests") {
  SweepFacts facts;
  facts.metric = "eval/accuracy";
  facts.better = MonitorMode::kMax;
  facts.num_trials = 2;
  facts.halving = Halving::Options{10, 3, false};
  SweepTrial trial;
  trial.id = 4;
  trial.digest = "abc";
  trial.values = {{"seed", "1"}};
  std::vector<nlohmann::json> entries = {
      sweep_events::start(facts),       sweep_events::trial(trial),
      sweep_events::number(0, 4),       sweep_events::reached(4, {0, 10, 0.5}, 1.5, std::nullopt),
      sweep_events::promoted(4, 0, 30), sweep_events::finished(4, 25, 0.75, 3, "")};
  const SweepState state(entries);
  REQUIRE(state.find("abc"));
  CHECK(state.trial(4).state == SweepTrial::State::kFinished);
  CHECK(state.trial(4).figure == 0.75);
  CHECK(state.trial(4).reached.size() == 1);
  CHECK(state.next_id() == 5);
  CHECK(state.trial_of_number().at(0) == 4);
  facts.num_trials = 3;
  entries.push_back(sweep_events::start(facts));
  const SweepState other(entries);
  CHECK(other.trial_of_number().empty());
  REQUIRE(other.find("abc"));
  CHECK(other.trial(4).state == SweepTrial::State::kWaiting);
  CHECK(!other.trial(4).figure);
  CHECK(other.trial(4).goal == 10);
}

TEST_CASE("a key's share of the variance is that of its groups") {
  const std::vector<double> figures = {1, 1.2, 3, 3.2, 1.1, 3.1};
  const std::vector<std::string> deciding = {"a", "a", "b", "b", "a", "b"}, idle = {"x", "y", "x", "y", "y", "x"};
  // ε² by hand: within 0.04 over 4 degrees of freedom, all 6.04 over 5
  CHECK(*explained_variance(deciding, figures) == doctest::Approx(1 - (0.04 / 4) / (6.04 / 5)));
  CHECK(*explained_variance(idle, figures) == 0);
  CHECK(!explained_variance({"a", "a", "a", "a", "a", "a"}, figures));
  CHECK(!explained_variance({"a", "b", "c", "d", "e", "f"}, figures));
  std::vector<std::string> numbers;
  std::vector<double> rising;
  for (int i = 0; i < 40; ++i) {
    numbers.push_back(std::to_string(i));
    rising.push_back(i);
  }
  CHECK(*explained_variance(numbers, rising) > 0.9);  // four groups of ten
}

}  // namespace trainrun
