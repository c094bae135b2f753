#include "runner/foresight/communication_plan.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "registry/graph/flatten.h"
#include "registry/graph/shape_mode.h"
#include "registry/kinds/build.h"
#include "runner/distributed/data_parallel.h"
#include "runner/distributed/shard_layout.h"
#include "runner/train/step_batches.h"
#include "runner/train/train_step.h"

namespace trainrun {
namespace {

constexpr int64_t kNumberBytes = 4;  // a float32 that all ranks must agree on

int64_t bytes_of(const at::Tensor& tensor) { return static_cast<int64_t>(tensor.nbytes()); }

int64_t sum_of(const std::vector<int64_t>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), int64_t{0});
}

/// Of several tensors, those of one dtype travel together.
void add_broadcast(std::vector<TrafficLine>& lines, const std::string& purpose, const Tensors& tensors) {
  std::map<at::ScalarType, int64_t> by_dtype;
  for (const at::Tensor& tensor : tensors) by_dtype[tensor.scalar_type()] += bytes_of(tensor);
  for (const auto& [dtype, bytes] : by_dtype) add_traffic(lines, purpose, "broadcast", 1, bytes);
}

/// Notes what a communication hook sends.
class Recorder : public Communicator {
 public:
  Recorder(int64_t world_size, std::vector<TrafficLine>& lines) : world_size_(world_size), lines_(lines) {}
  int64_t rank() const override { return 0; }
  int64_t world_size() const override { return world_size_; }
  FutureTensor start_sum(const at::Tensor& tensor) override {
    add_traffic(lines_, "gradients", "all_reduce", 1, bytes_of(tensor));
    return finished(tensor);
  }
  void sum(const at::Tensor& tensor) override {
    add_traffic(lines_, "layers and hooks", "all_reduce", 1, bytes_of(tensor));
  }

 private:
  int64_t world_size_;
  std::vector<TrafficLine>& lines_;
};

/// One backward pass's reductions in buckets of `tensors`, through the hook if there is one.
void add_buckets(const std::vector<std::vector<size_t>>& buckets, const Tensors& tensors, CommHook* hook,
                 int64_t world_size, std::vector<TrafficLine>& lines) {
  const ShapeMode shapes;
  const c10::AutoGradMode no_gradients(false);
  Recorder recorder(world_size, lines);
  for (size_t b = 0; b < buckets.size(); ++b) {
    int64_t size = 0;
    for (const size_t i : buckets[b]) size += tensors[i].numel();
    GradientBucket bucket;
    bucket.index = static_cast<int64_t>(b);
    bucket.values = at::empty({size}, tensors[buckets[b][0]].scalar_type());
    bucket.is_last = b + 1 == buckets.size();
    int64_t offset = 0;
    for (const size_t i : buckets[b]) {
      bucket.gradients.push_back(bucket.values.narrow(0, offset, tensors[i].numel()).view(tensors[i].sizes()));
      offset += tensors[i].numel();
    }
    if (hook) {
      hook->reduce(bucket, recorder);
    } else {
      recorder.start_sum(bucket.values);
    }
  }
}

int64_t bytes_of_bucket(const std::vector<size_t>& bucket, const Tensors& tensors) {
  int64_t bytes = 0;
  for (const size_t i : bucket) bytes += bytes_of(tensors[i]);
  return bytes;
}

void plan_copies(const Recipe& recipe, const Model& model, int64_t world_size, CommunicationPlan& plan) {
  Tensors trained;
  for (const auto& [name, parameter] : model.parameters()) {
    plan.parameters.emplace_back(name, parameter);
    plan.parameters_bytes += bytes_of(parameter);
    if (parameter.requires_grad()) trained.push_back(parameter);
  }
  for (const at::Tensor& parameter : trained) plan.gradients_bytes += bytes_of(parameter);
  if (world_size == 1 || trained.empty()) return;
  Tensors all = trained;
  const Tensors buffers = model.buffers();
  all.insert(all.end(), buffers.begin(), buffers.end());
  add_broadcast(plan.start, "initial weights", all);
  const auto& chosen = recipe.distributed.comm_hook;
  const auto hook = chosen ? build_at_place(*chosen, CommHookInputs{world_size}) : nullptr;
  const auto buckets = gradient_buckets(trained, recipe.distributed.bucket_cap_mb);
  add_buckets(buckets, trained, hook.get(), world_size, plan.first_step);
  add_buckets(buckets, trained, hook.get(), world_size, plan.step);
  for (const auto& bucket : buckets) plan.reductions.push_back(bytes_of_bucket(bucket, trained));
}

/// A unit of ShardedModel.
struct PlannedUnit {
  explicit PlannedUnit(ShardUnit given, int64_t world_size)
      : unit(std::move(given)), layout(sizes(), world_size), shard(layout.shard_size * element_size()) {
    whole = shard * world_size;
    for (const auto& [name, parameter] : unit.parameters) is_trained |= parameter.requires_grad();
  }
  bool is_rest() const { return unit.name.empty(); }
  int64_t element_size() const { return unit.parameters[0].second.element_size(); }
  std::vector<int64_t> sizes() const {
    std::vector<int64_t> all;
    for (const auto& [name, parameter] : unit.parameters) all.push_back(parameter.numel());
    return all;
  }

  ShardUnit unit;
  ShardLayout layout;
  int64_t shard;  // bytes
  int64_t whole = 0;
  bool is_trained = false;
};

/// This rank's parts, and what is kept of them.
void plan_pieces(const std::vector<PlannedUnit>& units, const Model& model, int64_t rank, CommunicationPlan& plan) {
  const ShapeMode shapes;
  std::map<std::string, at::Tensor> pieces;
  for (const PlannedUnit& unit : units) {
    bool keeps_gradient = false;
    for (size_t i = 0; i < unit.unit.parameters.size(); ++i) {
      const auto& [name, parameter] = unit.unit.parameters[i];
      const int64_t length = unit.layout.piece(i, parameter.numel(), rank).second;
      pieces[name] = at::empty({length}, parameter.scalar_type()).requires_grad_(parameter.requires_grad());
      keeps_gradient |= parameter.requires_grad() && length > 0;
    }
    plan.parameters_bytes += unit.shard;
    if (keeps_gradient) plan.gradients_bytes += unit.shard;
  }
  for (const auto& [name, parameter] : model.parameters()) plan.parameters.emplace_back(name, pieces.at(name));
}

/// Whether each unit's parameters are gathered once more for the backward pass: those that gradients pass through, or
/// that are prefetched for the layer after them. The last one is still whole then.
std::vector<bool> gathered_again(const std::vector<PlannedUnit>& units, bool prefetch) {
  std::vector<bool> again(units.size());
  bool passed = false;
  for (size_t i = 0; i < units.size(); ++i) {
    if (units[i].is_rest()) continue;
    passed |= units[i].is_trained;
    const bool is_last = i + 1 == units.size();
    again[i] = !is_last && (passed || (prefetch && units[i + 1].is_trained));
  }
  return again;
}

/// The most that is whole at a time: a layer, those it lies in, the next one, and what lies in no layer.
int64_t most_gathered(const std::vector<PlannedUnit>& units, const ShardingSection& sharding) {
  int64_t all = 0;
  int64_t rest = 0;
  for (const PlannedUnit& unit : units) {
    all += unit.whole;
    if (unit.is_rest()) rest = unit.whole;
  }
  if (sharding.stage() < 3) return all;
  int64_t most = rest;
  for (size_t i = 0; i < units.size(); ++i) {
    if (units[i].is_rest()) continue;
    int64_t together = rest + units[i].whole;
    for (const PlannedUnit& other : units) {
      if (!other.is_rest() && units[i].unit.name.starts_with(other.unit.name + ".")) together += other.whole;
    }
    if (sharding.prefetch && i + 1 < units.size()) together += units[i + 1].whole;
    most = std::max(most, together);
  }
  return most;
}

/// The most gradients that are whole at a time: of the layer that is computed and the one before it, which is on its
/// way.
int64_t most_whole_gradients(const std::vector<PlannedUnit>& units, int64_t stage) {
  int64_t all = 0;
  int64_t rest = 0;
  int64_t most = 0;
  int64_t before = 0;
  for (const PlannedUnit& unit : units) {
    if (!unit.is_trained) continue;
    all += unit.whole;
    if (unit.is_rest()) {
      rest = unit.whole;
      continue;
    }
    most = std::max(most, before + unit.whole);
    before = unit.whole;
  }
  return stage == 1 ? all : most + rest;
}

void plan_shards(const Recipe& recipe, Model& model, int64_t world_size, int64_t rank, CommunicationPlan& plan) {
  const ShardingSection& sharding = recipe.sharding;
  std::vector<PlannedUnit> units;
  for (ShardUnit& unit : shard_units(model.graph(), sharding.wrap)) units.emplace_back(std::move(unit), world_size);
  plan_pieces(units, model, rank, plan);
  plan.num_units = static_cast<int64_t>(units.size());
  plan.gathered_bytes = most_gathered(units, sharding);
  plan.whole_gradients_bytes = most_whole_gradients(units, sharding.stage());
  plan.reduces_every_pass = sharding.stage() > 1;
  const std::vector<bool> again = gathered_again(units, sharding.prefetch);
  const int64_t window = recipe.training.gradient_accumulation_steps;
  for (size_t i = 0; i < units.size(); ++i) {
    const PlannedUnit& unit = units[i];
    Tensors tensors;
    for (const auto& [name, parameter] : unit.unit.parameters) tensors.push_back(parameter);
    add_broadcast(plan.start, "initial weights", tensors);
    plan.forward_gathers.push_back(unit.whole);
    if (sharding.stage() == 3 && again[i]) plan.backward_gathers.push_back(unit.whole);
    if (unit.is_trained) plan.reductions.push_back(unit.whole);
  }
  const std::vector<const std::vector<int64_t>*> gathers = {&plan.forward_gathers, &plan.backward_gathers};
  for (const auto* wholes : gathers) {
    if (wholes->empty()) continue;
    add_traffic(plan.step, "parameters", "all_gather", window * static_cast<int64_t>(wholes->size()),
                window * sum_of(*wholes) / world_size);
  }
  std::reverse(plan.backward_gathers.begin(), plan.backward_gathers.end());
  std::reverse(plan.reductions.begin(), plan.reductions.end());
  const int64_t passes = plan.reduces_every_pass ? window : 1;
  add_traffic(plan.step, "gradients", "reduce_scatter", passes * static_cast<int64_t>(plan.reductions.size()),
              passes * sum_of(plan.reductions));
  if (recipe.mixed_precision == MixedPrecision::kFp16)
    add_traffic(plan.step, "layers and hooks", "all_reduce", 1, kNumberBytes);
  if (recipe.training.max_grad_norm) add_traffic(plan.step, "layers and hooks", "all_reduce", 1, kNumberBytes);
  plan.first_step = plan.step;
}

/// Whether the backward pass computes the layer of this index again.
bool is_recomputed(const Plan& plan, size_t layer) {
  return std::any_of(plan.steps.begin(), plan.steps.end(),
                     [&](const PlanStep& step) { return step.inside && step.first <= layer && layer < step.end; });
}

/// Layers that work on the batches of all ranks. Batch normalizations: a row of each rank's statistics forward, two sums
/// backward. Tables of vectors with `max_norm`: which vectors are looked up.
void add_spanning_layers(const Recipe& recipe, const Model& model, int64_t world_size,
                         std::vector<TrafficLine>& lines) {
  const int64_t window = recipe.training.gradient_accumulation_steps;
  const FlatGraph flat = flatten(model.graph());
  for (size_t i = 0; i < flat.layers.size(); ++i) {
    const FlatLayer& layer = flat.layers[i];
    if (!layer.is_leaf() || !layer.node->layer.operation->traits().spans_ranks) continue;
    const int64_t runs = is_recomputed(model.plan(), i) ? 2 : 1;
    if (layer.node->attributes.contains("max_norm")) {
      const int64_t vectors = layer.node->attributes.at("num_embeddings").get<int64_t>();
      add_traffic(lines, "layers and hooks", "all_reduce", runs * window, runs * window * vectors * kNumberBytes);
      continue;
    }
    if (!recipe.sync_batchnorm && layer.node->type != "SyncBatchNorm") continue;
    const int64_t channels = layer.node->input_shapes[0][1];
    const int64_t forward = world_size * (2 * channels + 1) * kNumberBytes;
    add_traffic(lines, "layers and hooks", "all_reduce", (runs + 1) * window,
                window * (runs * forward + 2 * channels * kNumberBytes));
  }
}

/// What every optimizer step does besides, whatever the parallel model: see train_step.
void add_common(const Recipe& recipe, Model& model, int64_t world_size, std::vector<TrafficLine>& lines) {
  add_broadcast(lines, "buffers", model.buffers());
  add_spanning_layers(recipe, model, world_size, lines);
  const auto num_losses = static_cast<int64_t>(recipe.loss.size());
  const int64_t parts = num_losses > 1 ? num_losses : 0;
  if (const auto num_counting = static_cast<int64_t>(model.num_counting_losses()); num_counting > 0) {
    add_traffic(lines, kCountingTargets, "all_reduce", 1, num_counting * static_cast<int64_t>(sizeof(double)));
  }
  add_traffic(lines, "the end of the step", "all_reduce", 1,
              step_numbers(recipe, parts) * static_cast<int64_t>(sizeof(double)));
}

}  // namespace

void add_traffic(std::vector<TrafficLine>& lines, const std::string& purpose, const std::string& operation,
                 int64_t calls, int64_t bytes) {
  const auto known = std::find_if(lines.begin(), lines.end(), [&](const TrafficLine& line) {
    return line.purpose == purpose && line.operation == operation;
  });
  TrafficLine& line = known == lines.end() ? lines.emplace_back(TrafficLine{purpose, operation, 0, 0}) : *known;
  line.calls += calls;
  line.bytes += bytes;
}

CommunicationPlan plan_communication(const Recipe& recipe, Model& model, int64_t world_size, int64_t rank) {
  CommunicationPlan plan;
  const bool is_sharded = recipe.sharding_stage() > 0;
  if (is_sharded && world_size > 1) {
    plan_shards(recipe, model, world_size, rank, plan);
  } else {
    plan_copies(recipe, model, world_size, plan);
  }
  if (world_size == 1) return plan;
  add_common(recipe, model, world_size, plan.first_step);
  add_common(recipe, model, world_size, plan.step);
  return plan;
}

}  // namespace trainrun
