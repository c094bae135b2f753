#include "runner/foresight/scaling.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randperm.h>

#include <numeric>

#include "runner/distributed/shard_layout.h"
#include "runner/loggers/loggers.h"
#include "tests/doctest.h"

namespace trainrun {
namespace {

constexpr int64_t kFloat = 4;

LoadedRecipe load(const std::string& path, const std::vector<std::string>& overrides = {}) {
  static Catalog catalog = [] {
    Catalog made = builtins();
    add_loggers(made.loggers);
    return made;
  }();
  return load_recipe(path, overrides, catalog);
}

ScalePlan plan(const std::string& path, int64_t world_size, const std::vector<std::string>& overrides = {},
               int64_t rank = 0) {
  ScaleOptions options;
  options.world_size = world_size;
  options.rank = rank;
  return plan_scale(load(path, overrides), options);
}

TrafficLine line(const std::vector<TrafficLine>& lines, const std::string& purpose) {
  for (const TrafficLine& line : lines) {
    if (line.purpose == purpose) return line;
  }
  return {};
}

constexpr const char* kSmall = "tests/recipes/digits_small.yaml";
// 64 * 32 + 32 and 32 * 10 + 10 parameters.
constexpr const char* kTwoLayers =
    "model.layers=[Flatten, {type: Linear, out_features: 32}, {type: Linear, out_features: 10}]";

}  // namespace

TEST_CASE("rings and trees cost what their formulas say, and the faster all-reduce counts") {
  const Link link = {1e-6, 1e9};
  CHECK(all_reduce_sent_bytes(4, 1000) == doctest::Approx(1500));
  CHECK(all_gather_sent_bytes(4, 1000) == doctest::Approx(750));
  CHECK(all_reduce_sent_bytes(1, 1000) == 0);
  CHECK(ring_all_reduce_seconds(4, 1e6, link) == doctest::Approx(6e-6 + 1.5e-3));
  CHECK(tree_all_reduce_seconds(4, 1e6, link) == doctest::Approx(4e-6 + 2e-3));
  const Cluster one_node = {4, 4, link, {1, 1}};
  CHECK(all_reduce_seconds(one_node, 1e6) == doctest::Approx(6e-6 + 1.5e-3));  // a ring
  CHECK(all_reduce_seconds(one_node, 8) == doctest::Approx(4e-6 + 16e-9));     // a tree
  const Cluster nodes = {64, 8, link, {10e-6, 2e9}};
  CHECK(all_reduce_seconds(nodes, 1e9) == doctest::Approx(14e-6 + 1.75 + 140e-6 + 0.875));
  CHECK(all_gather_seconds(nodes, 1e9) == doctest::Approx(7e-6 + 0.875 + 70e-6 + 0.4375));
  CHECK(broadcast_seconds(nodes, 1e9) == doctest::Approx(3 * (1e-6 + 1) + 3 * (10e-6 + 0.5)));
  CHECK(all_reduce_seconds({1, 1, link, link}, 1e9) == 0);
}

TEST_CASE("10,007 samples over 3 ranks: one comes twice, and drop_last leaves out what fills no batch") {
  const std::string recipe = "tests/recipes/hundred_million.yaml";
  const std::vector<std::string> common = {"dataset.train.num_samples=10007", "distributed_type=MULTI_CPU",
                                           "model.layers=[{type: Linear, out_features: 10}]"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), common.begin(), common.end());
    return more;
  };
  const ScalePlan padded = plan(recipe, 3, with({"dataloader.batch_size=32"}));
  REQUIRE(padded.samples);
  CHECK(padded.samples->per_epoch == 3336);
  CHECK(padded.samples->added == 1);
  CHECK(padded.samples->left_out == 0);
  CHECK(padded.samples->steps_per_epoch == 105);
  CHECK(padded.effective_batch_size == 96);
  const ScalePlan dropped =
      plan(recipe, 3, with({"dataloader={batch_size: 32, drop_last: true}", "training.gradient_accumulation_steps=5"}));
  CHECK(dropped.samples->left_out == 3 * 8);
  CHECK(dropped.samples->steps_per_epoch == 21);  // 104 batches
  CHECK(dropped.effective_batch_size == 480);
}

TEST_CASE("a rank's order is its part of the whole permutation, in half the memory") {
  constexpr int64_t kSamples = 10007;
  constexpr int64_t kRanks = 3;
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(7 + 2);
  const at::Tensor whole = at::randperm(kSamples, generator, at::kLong);
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    const Sampler sampler(kSamples, {true, 7, Split::kPad, rank, kRanks});
    const at::Tensor places = (at::arange(sampler.size(), at::kLong) * kRanks + rank).remainder(kSamples);
    CHECK(at::equal(sampler.indices(2), whole.index_select(0, places)));
    CHECK(sampler.order_bytes() < (kSamples + 5 * sampler.size()) * kFloat + 1);
    const Sampler straight(kSamples, {false, 7, Split::kPad, rank, kRanks});
    CHECK(at::equal(straight.indices(2), places));
  }
}

TEST_CASE("the pieces of all ranks are the whole, and a rank keeps a fourth of everything") {
  for (const int64_t ranks : {2, 3, 4, 64, 4096}) {
    const std::vector<int64_t> sizes = {2048, 32, 320, 10};
    const ShardLayout layout(sizes, ranks);
    for (size_t i = 0; i < sizes.size(); ++i) {
      int64_t sum = 0;
      for (int64_t rank = 0; rank < ranks; ++rank) sum += layout.piece(i, sizes[i], rank).second;
      CHECK(sum == sizes[i]);
    }
    CHECK(layout.shard_size * ranks < 2 * 2410 + 16 * ranks);
  }
  const std::string large =
      "model.layers=[Flatten, {type: Linear, out_features: 4096}, {type: Linear, out_features: 10}]";
  const ScalePlan whole = plan(kSmall, 4, {large, "distributed_type=MULTI_CPU"});
  const int64_t parameters = 65 * 4096 + 4097 * 10;
  CHECK(whole.held.parameters == kFloat * parameters);
  CHECK(whole.held.gradients == kFloat * parameters);
  const ScalePlan sharded = plan(kSmall, 4, {large, "distributed_type=FSDP"});
  CHECK(sharded.held.parameters == doctest::Approx(static_cast<double>(whole.held.parameters) / 4).epsilon(0.001));
  CHECK(sharded.held.gradients == doctest::Approx(static_cast<double>(whole.held.gradients) / 4).epsilon(0.001));
  CHECK(sharded.held.optimizer_state ==
        doctest::Approx(static_cast<double>(whole.held.optimizer_state) / 4).epsilon(0.001));
  CHECK(sharded.gathered_bytes == doctest::Approx(whole.held.parameters).epsilon(0.001));  // a layer and the next
}

TEST_CASE("what ranks send follows from the stage and the window") {
  const std::vector<std::string> window = {kTwoLayers, "training.gradient_accumulation_steps=3"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), window.begin(), window.end());
    return more;
  };
  const int64_t bytes = kFloat * (2080 + 330);
  const ScalePlan copies = plan(kSmall, 4, with({"distributed_type=MULTI_CPU"}));
  CHECK((line(copies.step, "gradients") == TrafficLine{"gradients", "all_reduce", 1, bytes}));
  CHECK((line(copies.step, "the end of the step") == TrafficLine{"the end of the step", "all_reduce", 1, 48}));
  CHECK((copies.first_step == copies.step));
  const ScalePlan half = plan(kSmall, 4, with({"distributed_type=MULTI_CPU", "distributed.comm_hook=BF16Compression"}));
  CHECK(line(half.step, "gradients").bytes == bytes / 2);

  const int64_t shard = kFloat * (2080 / 4 + 8 + 96);  // of 4 ranks, each unit's rounded up to 16 elements: 528 and 96
  const int64_t once_more = kFloat * 528;              // for the backward pass: the last unit is still whole
  const ScalePlan third = plan(kSmall, 4, with({"distributed_type=FSDP"}));
  CHECK((line(third.step, "parameters") == TrafficLine{"parameters", "all_gather", 3 * 3, 3 * (shard + once_more)}));
  CHECK((line(third.step, "gradients") == TrafficLine{"gradients", "reduce_scatter", 3 * 2, 3 * 4 * shard}));
  const ScalePlan second = plan(kSmall, 4, with({"distributed_type=FSDP", "sharding.zero_stage=2"}));
  CHECK((line(second.step, "parameters") == TrafficLine{"parameters", "all_gather", 3 * 2, 3 * shard}));
  CHECK((line(second.step, "gradients") == TrafficLine{"gradients", "reduce_scatter", 3 * 2, 3 * 4 * shard}));
  const ScalePlan first = plan(kSmall, 4, with({"distributed_type=FSDP", "sharding.zero_stage=1"}));
  CHECK((line(first.step, "gradients") == TrafficLine{"gradients", "reduce_scatter", 2, 4 * shard}));
  const ScalePlan none = plan(kSmall, 4, with({"distributed_type=FSDP", "sharding.strategy=NO_SHARD"}));
  CHECK((none.step == copies.step));
  CHECK(sent_bytes(line(third.step, "parameters"), 4) == doctest::Approx(3 * 3 * (shard + once_more)));
  CHECK(sent_bytes(line(third.step, "gradients"), 4) == doctest::Approx(3 * 3 * shard));
}

TEST_CASE("communication that fits beside the backward pass costs nothing but its last part") {
  ScaleOptions options;
  options.world_size = 8;
  options.intra = {0, 1e9};
  options.sample_seconds = 1;
  const LoadedRecipe loaded = load(kSmall, {kTwoLayers, "distributed_type=MULTI_CPU"});
  const StepTime time = plan_scale(loaded, options).time;
  const double bytes = kFloat * (2080 + 330);
  CHECK(time.compute == doctest::Approx(32));
  CHECK(time.gradients == doctest::Approx(2 * 7.0 / 8 * bytes / 1e9));
  CHECK(time.exposed == doctest::Approx(time.gradients));  // one bucket, which is the last
  CHECK(time.others == doctest::Approx(2 * 2 * 7.0 / 8 * 8 / 1e9));
  CHECK(time.step() == doctest::Approx(32 + time.exposed + time.others));
  options.world_size = 1;
  CHECK(plan_scale(loaded, options).time.efficiency() == 1);
}

TEST_CASE("recipes of the size of published models have their parameters") {
  CHECK(plan("tests/recipes/resnet50.yaml", 64).held.parameters == kFloat * 25557032);
  // Short sequences: some operations of the shape mode take memory, and parameters stay the same.
  const ScalePlan decoder = plan("tests/recipes/decoder_7b.yaml", 64, {"dataset.train.shape=[16]"});
  const int64_t d = 4096;
  const int64_t layer = 12 * d * d + 13 * d;
  const int64_t parameters = 2 * 50257 * d + 2048 * d + 32 * layer + 2 * d;
  CHECK(decoder.held.parameters * 64 == doctest::Approx(kFloat * parameters).epsilon(0.001));
  CHECK(decoder.num_units == 36);
}

}  // namespace trainrun
