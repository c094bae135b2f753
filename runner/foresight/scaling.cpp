#include "runner/foresight/scaling.h"

#include <algorithm>
#include <numeric>

#include "registry/graph/shape_mode.h"
#include "registry/kinds/build.h"
#include "runner/base/arithmetic.h"
#include "runner/data/data.h"
#include "runner/foresight/communication_plan.h"
#include "runner/foresight/explain.h"
#include "runner/foresight/optimizer_memory.h"
#include "runner/model/flops.h"

namespace trainrun {
namespace {

constexpr int64_t kUsualRanksPerNode = 8;
constexpr double kForwardPart = 1.0 / 3;  // of the time of both passes: the backward pass has two products for each

int64_t ranks_per_node(const Recipe& recipe, const ScaleOptions& options) {
  const int64_t world_size = options.world_size;
  if (options.ranks_per_node) {
    if (world_size % *options.ranks_per_node == 0) return *options.ranks_per_node;
    throw ScaleOptionsError(std::to_string(world_size) + " ranks cannot be divided evenly over nodes of " +
                            std::to_string(*options.ranks_per_node) + "; choose --ranks-per-node so that they do");
  }
  if (recipe.num_machines > 1 && world_size % recipe.num_machines == 0) return world_size / recipe.num_machines;
  int64_t most = std::min(world_size, kUsualRanksPerNode);
  while (world_size % most != 0) --most;
  return most;
}

void check_options(const Recipe& recipe, const ScaleOptions& options) {
  if (options.world_size > 1 && recipe.distributed_type == DistributedType::kNo) {
    throw ScaleOptionsError(
        "several ranks need a distributed_type, the recipe's is 'NO'; add distributed_type=MULTI_CPU or FSDP");
  }
  if (options.rank < 0 || options.rank >= options.world_size) {
    throw ScaleOptionsError("there is no rank " + std::to_string(options.rank) + " among " +
                            std::to_string(options.world_size) + "; the first is 0");
  }
}

std::optional<SampleShare> share_samples(const Recipe& recipe, const DatasetInfo& info, int64_t world_size) {
  if (!info.num_samples) return std::nullopt;
  const LengthSummary length = explain_length(recipe, info);
  const DataLoaderOptions options = loader_options(recipe, nullptr, true, 0, world_size);
  const Sampler sampler(*info.num_samples,
                        {options.shuffle, options.seed, options.split, 0, world_size, options.drawing});
  const int64_t drawn = options.drawing.num_samples > 0 ? options.drawing.num_samples : *info.num_samples;
  SampleShare share;
  share.per_epoch = sampler.size();
  share.added = share.per_epoch * world_size - drawn;
  const int64_t in_whole_batches = share.per_epoch / options.batch_size * options.batch_size;
  if (options.drop_last) share.left_out = (share.per_epoch - in_whole_batches) * world_size;
  share.steps_per_epoch = *length.steps_per_epoch;
  share.order_bytes = sampler.order_bytes();
  return share;
}

int64_t optimizer_bytes(const Recipe& recipe, const Model& model, const CommunicationPlan& communication) {
  const OptimizerInputs inputs = group_parameters(recipe.optimizer, communication.parameters, model.lr_scales(recipe));
  if (communication.num_units > 0) {
    const ShapeMode shapes;
    require_elementwise(recipe.optimizer, *build_at_place(recipe.optimizer, inputs));
  }
  return optimizer_state_bytes(recipe.optimizer, inputs);
}

/// What of communication that lasts `seconds` does not fit into `beside`.
double left(double seconds, double beside) { return std::max(0.0, seconds - beside); }

double others_seconds(const CommunicationPlan& plan, const Cluster& cluster) {
  double seconds = 0;
  for (const TrafficLine& line : plan.step) {
    if (line.purpose == "gradients" || line.purpose == "parameters") continue;
    const auto calls = static_cast<double>(line.calls);
    const double bytes = static_cast<double>(line.bytes) / calls;
    seconds += calls *
               (line.operation == "broadcast" ? broadcast_seconds(cluster, bytes) : all_reduce_seconds(cluster, bytes));
  }
  return seconds;
}

StepTime predict_time(const Recipe& recipe, const CommunicationPlan& plan, const Cluster& cluster,
                      double sample_seconds) {
  const double window = static_cast<double>(recipe.training.gradient_accumulation_steps);
  const double pass = static_cast<double>(recipe.dataloader.batch_size) * sample_seconds;
  const bool is_sharded = plan.num_units > 0;
  const bool prefetch = recipe.sharding.prefetch;
  const auto gather = [&](int64_t bytes) { return all_gather_seconds(cluster, static_cast<double>(bytes)); };
  const auto reduce = [&](int64_t bytes) {
    return is_sharded ? gather(bytes) : all_reduce_seconds(cluster, static_cast<double>(bytes));
  };
  const auto total = [](const std::vector<int64_t>& list, const auto& seconds_of) {
    return std::accumulate(list.begin(), list.end(), 0.0,
                           [&](double sum, int64_t bytes) { return sum + seconds_of(bytes); });
  };
  const double forward = total(plan.forward_gathers, gather);
  const double backward = total(plan.backward_gathers, gather);
  const double reductions = total(plan.reductions, reduce);
  const double first = plan.forward_gathers.empty() ? 0 : gather(plan.forward_gathers.front());
  const double last = plan.reductions.empty() ? 0 : reduce(plan.reductions.back());
  const double beside_forward = prefetch ? kForwardPart * pass : 0;
  const double beside_backward = (1 - kForwardPart) * pass;
  const double alone = prefetch ? 0 : backward;  // nothing is computed while it is gathered
  const double passing = prefetch ? backward : 0;
  const double reducing_passes = plan.reduces_every_pass ? window : 1;

  StepTime time;
  time.compute = window * pass;
  time.parameters = window * (forward + backward);
  time.gradients = reducing_passes * reductions;
  time.exposed = window * (first + left(forward - first, beside_forward) + alone);
  time.exposed += reducing_passes * (left(passing + reductions - last, beside_backward) + last);
  time.exposed += (window - reducing_passes) * left(passing, beside_backward);
  time.others = others_seconds(plan, cluster);
  return time;
}

std::vector<std::string> notes_of(const Recipe& recipe, const CommunicationPlan& communication) {
  std::vector<std::string> notes;
  if (communication.num_units > 0) {
    notes.emplace_back("Gloo does a reduce_scatter as an all_reduce, which sends twice as much");
  }
  if (recipe.distributed.comm_hook && recipe.distributed_type != DistributedType::kFsdp) {
    notes.push_back("gradients are sent as " + recipe.distributed.comm_hook->type +
                    " sends them in its first two steps; their time is that of whole gradients");
  }
  return notes;
}

}  // namespace

ScalePlan plan_scale(const LoadedRecipe& loaded, const ScaleOptions& options) {
  LoadedRecipe scaled = loaded;
  Recipe& recipe = scaled.recipe;
  check_options(recipe, options);
  recipe.num_processes = options.world_size;
  const auto model = plan_model(recipe);
  const CommunicationPlan communication = plan_communication(recipe, *model, options.world_size, options.rank);
  ScalePlan plan;
  plan.name = recipe.name;
  plan.path = loaded.path;
  plan.distributed_type = word_of(recipe.distributed_type);
  plan.stage = communication.num_units > 0 ? recipe.sharding.stage() : 0;
  plan.options = options;
  plan.ranks_per_node = ranks_per_node(recipe, options);
  plan.held.parameters = communication.parameters_bytes;
  plan.held.gradients = communication.gradients_bytes;
  plan.held.optimizer_state = optimizer_bytes(recipe, *model, communication);
  plan.gathered_bytes = communication.gathered_bytes;
  plan.whole_gradients_bytes = communication.whole_gradients_bytes;
  plan.num_units = communication.num_units;
  plan.start = communication.start;
  plan.first_step = communication.first_step;
  plan.step = communication.step;
  plan.batch_size = recipe.dataloader.batch_size;
  plan.gradient_accumulation_steps = recipe.training.gradient_accumulation_steps;
  plan.effective_batch_size =
      saturating_product(plan.batch_size, saturating_product(options.world_size, plan.gradient_accumulation_steps));
  plan.samples = share_samples(recipe, training_info(recipe), options.world_size);
  plan.flops = static_cast<double>(forward_flops(*model, training_info(recipe)));
  plan.notes = notes_of(recipe, communication);
  const Cluster cluster = {options.world_size, plan.ranks_per_node, options.intra, options.inter};
  const double by_flops = plan.flops / kForwardPart / options.flops_per_second;
  plan.time = predict_time(recipe, communication, cluster, options.sample_seconds.value_or(by_flops));
  return plan;
}

std::vector<TrafficLine> traffic_after(const ScalePlan& plan, int64_t steps) {
  std::vector<TrafficLine> lines;
  const auto add = [&](const std::vector<TrafficLine>& more, int64_t times) {
    for (const TrafficLine& line : more) {
      if (times > 0) add_traffic(lines, line.purpose, line.operation, times * line.calls, times * line.bytes);
    }
  };
  add(plan.start, 1);
  add(plan.first_step, std::min<int64_t>(steps, 1));
  add(plan.step, steps - 1);
  std::stable_sort(lines.begin(), lines.end(), [](const auto& a, const auto& b) { return a.purpose < b.purpose; });
  return lines;
}

double sent_bytes(const TrafficLine& line, int64_t world_size) {
  const auto bytes = static_cast<double>(line.bytes);
  if (line.operation == "all_reduce") return all_reduce_sent_bytes(world_size, bytes);
  if (line.operation == "broadcast") return broadcast_sent_bytes(world_size, bytes);
  // Of an all-gather a rank hands over its part only.
  return all_gather_sent_bytes(world_size,
                               line.operation == "all_gather" ? bytes * static_cast<double>(world_size) : bytes);
}

}  // namespace trainrun
