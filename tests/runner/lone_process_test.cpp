#include <ATen/core/ivalue.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>

#include "runner/distributed/parallel_model.h"
#include "runner/distributed/process_group.h"
#include "tests/doctest.h"

using namespace trainrun;  // NOLINT(google-build-using-namespace)

TEST_CASE("a process that trains alone is a group of one, which gives back what it is given") {
  ProcessGroup alone;
  CHECK(alone.is_alone());
  CHECK(alone.is_main());
  CHECK_FALSE(alone.is_fake());
  CHECK(alone.rank() == 0);
  CHECK(alone.world_size() == 1);
  const at::Tensor numbers = at::arange(6, at::kDouble).reshape({3, 2});
  const at::Tensor before = numbers.clone();
  alone.sum({numbers}, "a test");
  alone.sum(numbers);
  alone.broadcast({numbers}, "a test");
  CHECK(at::equal(numbers, before));
  CHECK(at::equal(alone.start_sum(numbers)->value().toTensor(), before));
  CHECK(at::equal(alone.gather_rows(numbers, "a test"), before));
  CHECK(alone.max(-3, "a test") == -3);
  CHECK(alone.share_text("text", "a test") == "text");
  CHECK(alone.gather_texts("text", "a test") == std::vector<std::string>{"text"});
  alone.barrier("a test");
  alone.set_step(7);
  {
    const PhaseScope phase(alone, Phase::kCheckpoint);
    CHECK(alone.set_phase(Phase::kCheckpoint) == Phase::kCheckpoint);
  }
  CHECK(alone.traffic().empty());
}

TEST_CASE("what a process that trains alone throws in a guarded call is passed on as it is") {
  ProcessGroup alone;
  CHECK_THROWS_WITH_AS(alone.guarded("a test", [] { throw std::out_of_range("no such row"); }), "no such row",
                       std::out_of_range);
}

TEST_CASE("the model of a process that trains alone is whole") {
  const at::Tensor weight = at::arange(3, at::kFloat);
  LoneModel model({{"weight", weight}});
  CHECK_FALSE(model.is_sharded());
  CHECK(model.parameters()[0].second.is_same(weight));
  CHECK(model.gather_model({{"weight", weight}})[0].second.is_same(weight));
  CHECK(model.own_state({{"weight.step", weight}})[0].first == "weight.step");
  CHECK(model.make_whole() == nullptr);
  CHECK(model.hook_state().empty());
}
