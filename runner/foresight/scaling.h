#pragma once

#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <vector>

#include "runner/foresight/dry_run.h"
#include "runner/foresight/link_costs.h"
#include "runner/model/recipe_loader.h"
#include "runner/train/resources.h"

namespace trainrun {

/// Options that do not fit the recipe, or each other.
class ScaleOptionsError : public Error {
 public:
  using Error::Error;
};

/// What a prediction rests on besides the recipe.
struct ScaleOptions {
  int64_t world_size = 1;
  int64_t rank = 0;                       // of which memory is told; the last ranks may keep less than the others
  std::optional<int64_t> ranks_per_node;  // by default num_machines says it, else the greatest divisor up to 8
  Link intra = {5e-6, 10e9};              // 5 microseconds, 10 GB/s
  Link inter = {20e-6, 12.5e9};           // 20 microseconds, 100 Gbit/s
  std::optional<double> sample_seconds;   // of computing on one sample, forward and backward; by default from FLOPs
  double flops_per_second = 1e11;         // that a rank reaches
};

/// The samples of a rank; nothing where the data must be opened to know their number.
struct SampleShare {
  int64_t per_epoch = 0;  // of each rank
  int64_t added = 0;      // samples that come twice, so that all ranks have as many
  int64_t left_out = 0;   // samples that drop_last leaves out, over all ranks
  int64_t steps_per_epoch = 0;
  int64_t order_bytes = 0;  // while an epoch begins: the order of all samples, of which the rank keeps its own
};

/// Seconds of one optimizer step.
struct StepTime {
  double compute = 0;    // forward and backward passes of a window
  double gradients = 0;  // communication that could overlap with them
  double parameters = 0;
  double exposed = 0;  // what of it does not
  double others = 0;   // buffers, the end of the step, layers: nothing overlaps with these
  double step() const { return compute + exposed + others; }
  double efficiency() const { return compute / step(); }  // against one rank with the same batch_size
};

/// What a recipe comes to on many ranks.
struct ScalePlan {
  std::string name;
  std::string path;
  std::string distributed_type;
  int64_t stage = 0;  // ShardingSection::stage
  ScaleOptions options;
  int64_t ranks_per_node = 1;
  HeldBytes held;
  int64_t gathered_bytes = 0;         // most of whole parameters at a time, where they are sharded
  int64_t whole_gradients_bytes = 0;  // most of whole gradients at a time, where they are sharded
  int64_t num_units = 0;              // that are gathered and sharded as one
  std::vector<TrafficLine> start;     // once, before the first step
  std::vector<TrafficLine> first_step;
  std::vector<TrafficLine> step;  // each one after the first; of a full window of accumulation
  int64_t effective_batch_size = 0;
  int64_t batch_size = 0;
  int64_t gradient_accumulation_steps = 1;
  std::optional<SampleShare> samples;
  double flops = 0;  // of one sample, forward
  StepTime time;
  std::vector<std::string> notes;  // what is not foreseen
};

/// Predicts what a rank holds, sends and how long a step takes. Opens no data, takes no memory for the model.
///
/// Held bytes and traffic are those that `resources_of` finds in a run with these options whose layers compute in the
/// recipe's order, evaluations and checkpoints aside. Time: a sample takes sample_seconds, or 3 * FLOPs of its forward
/// pass / flops_per_second; a third of that is the forward pass. Collectives take what link_costs.h says. Those of
/// gradients overlap with the backward pass, but for the last bucket or layer; gathered parameters overlap with the
/// pass that they are gathered in, but for the first; the rest overlaps with nothing. The optimizer's own time, and the
/// data's, are left out. Throws RecipeError, ScaleOptionsError.
ScalePlan plan_scale(const LoadedRecipe& loaded, const ScaleOptions& options);

/// What `lines` come to after so many steps.
std::vector<TrafficLine> traffic_after(const ScalePlan& plan, int64_t steps);
/// What one rank sends for `line` in rings, in bytes.
double sent_bytes(const TrafficLine& line, int64_t world_size);

/// For people, within 100 columns unless names are long; with what a dry run found beside the prediction.
std::string to_text(const ScalePlan& plan, const std::optional<DryRun>& found);
nlohmann::ordered_json to_json(const ScalePlan& plan, const std::optional<DryRun>& found);

}  // namespace trainrun
