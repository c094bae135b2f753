// What a run keeps, taken while it trains, and what checkpoints make of it.
#include "runner/run/snapshots.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>

#include "tests/runner/training_support.h"

namespace trainrun {
namespace {

using namespace test;

Snapshots some_parts() {
  Snapshots parts;
  parts["model"].tensors = {{"0.weight", at::ones({2})}};
  parts["optimizer"].tensors = {{"0.weight.exp_avg", at::ones({3})}};
  parts["optimizer"].values = nlohmann::json(nlohmann::json::value_t::discarded);
  parts["model"].values = nlohmann::json(nlohmann::json::value_t::discarded);
  parts["callbacks[0]"] = {{{"0.weight.average", at::ones({4})}}, {{"waited", 2}}};
  parts["progress"].values = {{"step", 7}, {"epoch", 1}};
  return parts;
}

}  // namespace

TEST_CASE("a checkpoint's files hold what the parts gave, and give it back") {
  const CheckpointContent content = content_of(some_parts());
  CHECK(content.state == nlohmann::json{{"step", 7}, {"epoch", 1}, {"callbacks[0]", {{"waited", 2}}}});
  REQUIRE(content.model.size() == 1);
  REQUIRE(content.optimizer.size() == 2);
  CHECK(content.optimizer[0].first == "callbacks[0].0.weight.average");
  CHECK(content.optimizer[1].first == "0.weight.exp_avg");
  const Snapshots parts = parts_of(content, {"model", "optimizer", "progress", "callbacks[0]", "comm_hook"});
  CHECK(parts.at("callbacks[0]").tensors[0].first == "0.weight.average");
  CHECK(parts.at("callbacks[0]").values == nlohmann::json{{"waited", 2}});
  CHECK(parts.at("optimizer").tensors[0].first == "0.weight.exp_avg");
  CHECK(parts.at("progress").values.at("step") == 7);
  CHECK_FALSE(parts.contains("comm_hook"));
}

TEST_CASE("a snapshot with copies of its own stays as it was while training goes on, and what it wrote goes on alike") {
  const TemporaryFolder folder;
  const std::vector<std::string> overrides = {"training={max_steps: 9}", "evaluation.every=null",
                                              "callbacks=[{type: EMA, decay: 0.9}]"};
  Script whole;
  Snapshots own, shared;
  Job* running = nullptr;
  whole.in_training = [&](const at::Tensor& input, int64_t batch) {
    if (batch == 5) {  // between steps 4 and 5: nothing of step 5 is done but the loss of its batch
      own = running->capture(Job::Copies::kOwn);
      shared = running->capture(Job::Copies::kShared);
    }
    return input;
  };
  Catalog catalog = catalog_with();
  CHECK(train_in(folder / "whole", whole, overrides, catalog, [&](Job& job) { running = &job; }) == 0);
  CHECK(own.at("progress").values.at("step") == 4);
  for (const char* part : {"model", "optimizer", "callbacks[0]"}) {
    CAPTURE(part);
    CHECK_FALSE(own.at(part).tensors.empty());
    bool changed = false;
    for (size_t i = 0; i < own.at(part).tensors.size(); ++i) {
      changed |= !at::equal(own.at(part).tensors[i].second, shared.at(part).tensors[i].second);
    }
    CHECK(changed);
  }
  const std::string checkpoint = folder / "written/checkpoints/step-00000004";
  CheckpointStore(folder / "written/checkpoints", {}).save("step-00000004", content_of(own), false);
  Script rest;
  std::vector<std::string> resumed = overrides;
  resumed.push_back("checkpoint.resume=" + checkpoint);
  CHECK(train_in(folder / "rest", rest, resumed, catalog) == 0);
  CHECK(rest.training_batches == 5);
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    CHECK(content_of(folder / ("rest/checkpoints/latest/" + std::string(file))) ==
          content_of(folder / ("whole/checkpoints/latest/" + std::string(file))));
  }
}

}  // namespace trainrun
