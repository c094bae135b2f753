#include "runner/foresight/demand.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "runner/base/byte_size.h"
#include "tests/doctest.h"
#include "tests/runner/recipe_support.h"

namespace trainrun {
namespace {

constexpr int64_t kMegabyte = 1'000'000;

/// A machine on which a job takes 100 MB and `per_sample` MB for each sample of a batch, and on which no more than
/// `most` MB can be had.
struct ImaginedMachine {
  int64_t per_sample = 1;
  int64_t most = 1'000'000;
  int64_t total_steps = 1000;
  double step_seconds = 0.5;
  double start_seconds = 0;
  double build_seconds = 0;
  int64_t folds = 1;
  int64_t least_size = 1;          // smaller batches are refused, since they have too few samples,
  int64_t least_working_size = 1;  // and these for another reason
  std::vector<int64_t> asked;
  std::vector<RehearsalAim> aims;
  bool fails_in_proof = false;  // of smaller batches

  RehearsalResult rehearse(int64_t own, const std::vector<std::string>& overrides) {
    int64_t size = own;
    for (const std::string& one : overrides) {
      if (one.starts_with("dataloader.micro_batch_size=")) size = std::stoll(one.substr(one.find('=') + 1));
    }
    asked.push_back(size);
    RehearsalResult result;
    if (size < least_size) {
      result.error = "note: of the recipe\nBatchNorm cannot normalize one value\n";
      result.is_too_small = true;
      return result;
    }
    if (size < least_working_size) {
      result.error = "trainrun: runs: No space left on device\n";
      return result;
    }
    if (100 + per_sample * size > most) {
      result.was_killed = true;
      return result;
    }
    Rehearsal& r = result.rehearsal.emplace();
    r.batch_size = size;
    r.steps = 5;
    r.start_seconds = start_seconds;
    r.build_seconds = build_seconds;
    r.step_seconds = step_seconds;
    r.folds = folds;
    r.total_steps = total_steps;
    r.steps_per_epoch = 100;
    r.program_bytes = 50 * kMegabyte;
    r.built_bytes = 60 * kMegabyte;
    r.peak_bytes = (100 + per_sample * size) * kMegabyte;
    return result;
  }
};

LoadedRecipe digits(const std::vector<std::string>& overrides) {
  return load_recipe("recipes/digits_mlp.yaml", overrides, test::catalog_of_the_program());
}

Demand foresee_on(ImaginedMachine& machine, const LoadedRecipe& loaded, const DemandLimits& limits) {
  return foresee(loaded, explain(loaded), limits, [&](const std::vector<std::string>& overrides, RehearsalAim aim) {
    machine.aims.push_back(aim);
    if (machine.fails_in_proof && !overrides.empty() && aim == RehearsalAim::kMemoryAndTime) {
      return RehearsalResult{std::nullopt, false, "trainrun: runs: No space left on device\n"};
    }
    return machine.rehearse(loaded.recipe.dataloader.batch_size, overrides);
  });
}

}  // namespace

TEST_CASE("sizes are read in powers of 1000 and of 1024") {
  CHECK(parse_bytes("8GB") == 8'000'000'000);
  CHECK(parse_bytes("1.5 kb") == 1500);
  CHECK(parse_bytes("512MiB") == 536'870'912);
  CHECK(parse_bytes("7B") == 7);
  for (const char* wrong : {"", "8", "GB", "8 G", "-1GB", "0GB", "1e3MB", "8GB!", "1..5GB", "99999999TB"}) {
    CAPTURE(wrong);
    CHECK_FALSE(parse_bytes(wrong));
  }
}

TEST_CASE("a job fits where its peak is at most the limit") {
  const LoadedRecipe loaded = digits({"dataloader.batch_size=64"});
  ImaginedMachine machine;
  const Demand equal = foresee_on(machine, loaded, {.bytes = 164 * kMegabyte});
  CHECK(equal.peak_bytes == 164 * kMegabyte);
  CHECK(equal.fits->holds);
  CHECK(machine.asked == std::vector<int64_t>{64});
  const Demand below = foresee_on(machine, loaded, {.bytes = 164 * kMegabyte - 1});
  CHECK_FALSE(below.fits->holds);
}

TEST_CASE("the advice is the largest divisor of the batch size that fits, with as many samples in a step") {
  const LoadedRecipe loaded = digits({"dataloader.batch_size=60", "training.gradient_accumulation_steps=2"});
  for (const auto& one : std::map<int64_t, int64_t>{{159, 30}, {129, 20}, {119, 15}, {110, 6}, {105, 1}}) {
    const int64_t limit = one.first;
    const int64_t size = one.second;
    CAPTURE(limit);
    ImaginedMachine machine;
    const Demand demand = foresee_on(machine, loaded, {.bytes = limit * kMegabyte});
    CHECK_FALSE(demand.fits->holds);
    CHECK(demand.fits->advice == std::vector<std::string>{"dataloader.micro_batch_size=" + std::to_string(size)});
    CHECK(machine.asked.back() == size);  // it was rehearsed
  }
  ImaginedMachine machine;
  const Demand demand = foresee_on(machine, loaded, {.bytes = 100 * kMegabyte});
  CHECK(demand.fits->advice.empty());
  CHECK(demand.fits->remark.find("batches of 1 it still takes 101") != std::string::npos);
}

TEST_CASE("where batches of one sample cannot be trained, the advice is about larger ones") {
  const LoadedRecipe loaded = digits({"dataloader.batch_size=60"});
  ImaginedMachine machine;
  machine.least_size = 3;
  CHECK(foresee_on(machine, loaded, {.bytes = 108 * kMegabyte}).fits->advice ==
        std::vector<std::string>{"dataloader.micro_batch_size=4"});
  const Demand demand = foresee_on(machine, loaded, {.bytes = 102 * kMegabyte});
  CHECK_FALSE(demand.fits->holds);
  CHECK(demand.fits->advice.empty());
  CHECK(demand.fits->remark == "smaller batches alone do not help: with batches of 3 it still takes 103 MB");
}

TEST_CASE("sizes that BatchNorm refuses are told once, with what it said") {
  const LoadedRecipe loaded = digits({"dataloader.batch_size=60"});
  ImaginedMachine machine;
  machine.least_size = 3;
  const DemandLimits limits{.bytes = 102 * kMegabyte};
  const Demand demand = foresee_on(machine, loaded, limits);
  REQUIRE(demand.skipped.size() == 2);
  CHECK(demand.skipped[0].batch_size == 1);
  CHECK(demand.skipped[1].batch_size == 2);
  for (const int64_t size : {1, 2}) CHECK(std::ranges::count(machine.asked, size) == 1);
  CHECK(demand.skipped[0].why == "BatchNorm cannot normalize one value");
  CHECK(to_json(demand).at("skipped").at(1).at("batch_size").get<int64_t>() == 2);
  std::string text = to_text(demand, explain(loaded), limits);
  for (size_t at = 0; (at = text.find_first_of(" \n", at)) != std::string::npos;) {
    const size_t end = text.find_first_not_of(" \n", at);  // lines are broken
    text.replace(at, std::min(end, text.size()) - at, " ");
    ++at;
  }
  CHECK(
      text.find("batches of 1, 2 were left out, since they cannot be trained: BatchNorm cannot normalize one value") !=
      std::string::npos);
  ImaginedMachine another;
  CHECK(foresee_on(another, loaded, limits).skipped.empty());
}

TEST_CASE("another error of smaller batches is told, and ends the search for advice") {
  const LoadedRecipe loaded = digits({"dataloader.batch_size=60"});
  ImaginedMachine machine;
  machine.least_working_size = 20;
  const Demand demand = foresee_on(machine, loaded, {.bytes = 108 * kMegabyte});
  CHECK_FALSE(demand.fits->holds);
  CHECK(demand.fits->advice.empty());
  CHECK(demand.skipped.empty());
  CHECK(demand.fits->remark.starts_with("smaller batches were not tried further: the job cannot be rehearsed in "));
  CHECK(demand.fits->remark.ends_with("No space left on device"));
}

TEST_CASE("the program starts once, and each fold opens the data and builds the model") {
  ImaginedMachine machine;
  machine.start_seconds = 3;
  machine.build_seconds = 1;
  const LoadedRecipe loaded = digits({"dataloader.batch_size=64"});
  CHECK(foresee_on(machine, loaded, {}).seconds == doctest::Approx(3 + 500));
  machine.folds = 5;
  CHECK(foresee_on(machine, loaded, {}).seconds == doctest::Approx(3 + 4 * 1 + 5 * 500));
}

TEST_CASE("a batch is cut into pieces, of which as many make a step as before") {
  const LoadedRecipe loaded = digits({"dataloader={batch_size: 60, micro_batch_size: 15}", "training.lr_scaling=linear",
                                      "training.gradient_accumulation_steps=2"});
  const Recipe& recipe = loaded.recipe;
  CHECK(recipe.dataloader.batch_size == 15);
  CHECK(recipe.training.gradient_accumulation_steps == 8);
  CHECK(recipe.lr_factor(3) == 6);  // as before: of 2 batches of 3 ranks
  CHECK(smaller_batches(recipe, 5) == std::vector<std::string>{"dataloader.micro_batch_size=5"});
  const auto read = [](const std::string& dataloader) { digits({"dataloader=" + dataloader}); };
  CHECK_THROWS_WITH_AS(read("{batch_size: 60, micro_batch_size: 7}"), doctest::Contains("write 6"), RecipeError);
  CHECK_THROWS_WITH_AS(read("{batch_size: 60, micro_batch_size: 70}"), doctest::Contains("write 60"), RecipeError);
  CHECK_THROWS_WITH_AS(read("{batch_size: 60, micro_batch_size: 6, drop_last: true}"), doctest::Contains("drop_last"),
                       RecipeError);
  const LoadedRecipe dropping = digits({"dataloader={batch_size: 60, drop_last: true}"});
  CHECK(smaller_batches(dropping.recipe, 15) ==
        std::vector<std::string>{"dataloader.batch_size=15", "training.gradient_accumulation_steps=4"});
}

TEST_CASE("where the recipe's batches do not fit into the machine, smaller ones say what they would take") {
  const LoadedRecipe loaded = digits({"dataloader.batch_size=64"});
  ImaginedMachine machine;
  machine.per_sample = 10;
  machine.most = 300;
  const Demand demand = foresee_on(machine, loaded, {.bytes = 700 * kMegabyte});
  CHECK(demand.is_extrapolated);
  CHECK(demand.peak_bytes == 740 * kMegabyte);
  CHECK_FALSE(demand.fits->holds);
  machine.most = 105;
  CHECK_THROWS_WITH_AS(foresee_on(machine, loaded, {}), doctest::Contains("too little memory to rehearse"), Error);
}

TEST_CASE(
    "seconds are spent on time only where it is wanted: on the recipe's own batches, and on those that are advised") {
  const auto loaded = digits({"dataloader.batch_size=1000"});
  ImaginedMachine machine;
  const DemandLimits limits{.bytes = 700 * kMegabyte};
  CHECK(foresee_on(machine, loaded, limits).fits->batch_size > 0);
  REQUIRE(machine.aims.size() > 1);
  CHECK(machine.aims.front() == RehearsalAim::kMemoryAndTime);
  CHECK(machine.aims.back() == RehearsalAim::kMemoryAndTime);  // of the batches that are advised
  CHECK(std::count(machine.aims.begin(), machine.aims.end(), RehearsalAim::kMemory) ==
        static_cast<int64_t>(machine.aims.size()) - 2);
  machine.fails_in_proof = true;
  CHECK(foresee_on(machine, loaded, limits).fits->remark.find("smaller batches were not tried further") == 0);
  machine.fails_in_proof = false;
  machine.aims.clear();
  const Demand of_memory = foresee_on(machine, loaded, {.bytes = limits.bytes, .wants_time = false});
  CHECK_FALSE(of_memory.seconds);
  CHECK(to_json(of_memory)["step_seconds"].is_null());
  CHECK(std::count(machine.aims.begin(), machine.aims.end(), RehearsalAim::kMemoryAndTime) == 0);
}

TEST_CASE("what goes wrong in a rehearsal is an error, not a job that does not fit") {
  const LoadedRecipe loaded = digits({});
  const auto fail = [](const std::vector<std::string>&, RehearsalAim) {
    return RehearsalResult{std::nullopt, false, "no such file"};
  };
  CHECK_THROWS_WITH_AS(foresee(loaded, explain(loaded), {}, fail), doctest::Contains("no such file"), Error);
}

TEST_CASE("a time is that of all steps, and the advice leaves a tenth of the limit over") {
  const LoadedRecipe loaded = digits({"training.num_epochs=10"});
  ImaginedMachine machine;  // 1000 steps of half a second
  const Demand demand = foresee_on(machine, loaded, {.seconds = 499});
  CHECK(*demand.seconds == doctest::Approx(500));
  CHECK_FALSE(demand.within->holds);
  CHECK(demand.within->advice == std::vector<std::string>{"training.num_epochs=8"});  // 449 s are eight epochs of 50
  CHECK(demand.within->most == "optimizer steps");
  CHECK(foresee_on(machine, loaded, {.seconds = 500}).within->holds);
  const Demand short_time = foresee_on(machine, loaded, {.seconds = 10});
  CHECK(short_time.within->advice == std::vector<std::string>{"training.max_steps=18"});
}

}  // namespace trainrun
