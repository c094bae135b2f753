#pragma once

#include <nlohmann/json.hpp>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runner/base/arithmetic.h"
#include "runner/model/recipe_loader.h"

namespace trainrun {

class Model;

/// One layer of the model, or one of the batch's fields that it reads.
struct LayerSummary {
  std::string name;  // in the state dict: "layer1.0.conv2"
  std::string type;
  int depth = 0;              // of nesting
  bool is_container = false;  // the layers within follow; the numbers below are of what it does besides them
  std::vector<std::string> output_shapes;  // "[N, 32, 26, 26]"
  int64_t parameters = 0;
  int64_t trainable_parameters = 0;
  int64_t late_parameters = 0;  // of the trainable ones: those that learn from unfreeze_at_epoch on
  int64_t flops = 0;  // of one sample, forward: multiplications and additions of matrix products and convolutions
  int64_t activation_bytes = 0;  // of one sample: outputs that are memory of their own, not views
};

/// Layers that are computed as one.
struct FusedSummary {
  std::string layers;  // "1 + 2"
  std::string types;   // "ReLU + MaxPool2d"
  std::string fusion;
};

/// A layer that the backward pass computes again.
struct RecomputedSummary {
  std::string layer;
  int64_t activation_bytes = 0;  // of one sample: what is not kept, as far as layers of the recipe give it
};

/// The parameters that share their options.
struct GroupSummary {
  std::string match;      // "" for those that no pattern matches
  std::string overrides;  // "weight_decay: 0"
  int64_t tensors = 0;
  int64_t parameters = 0;
  double lr = 0;  // the recipe's
};

/// The rates of each group for the step that follows `step` finished ones.
struct RatePoint {
  int64_t step = 0;
  std::vector<GroupRates> rates;
};

/// How long the job is; what depends on the size of data that nobody opened is missing.
struct LengthSummary {
  std::optional<int64_t> train_samples;
  std::optional<int64_t> eval_samples;
  std::optional<int64_t> batches_per_epoch;  // of each process
  std::optional<int64_t> steps_per_epoch;
  std::optional<int64_t> total_steps;
  std::optional<int64_t> num_epochs;
  int64_t batch_size = 0;  // of what is computed at once: a piece of a batch where there is micro_batch_size
  int64_t pieces = 1;      // of a batch
  int64_t num_processes = 0;
  int64_t gradient_accumulation_steps = 0;  // as computed: of pieces
  bool group_by_length = false;
  int64_t effective_batch_size() const {
    return saturating_product(batch_size, saturating_product(num_processes, gradient_accumulation_steps));
  }
};

/// Bytes, as far as they follow from the recipe.
struct MemorySummary {
  int64_t weights = 0;  // parameters and buffers
  int64_t gradients = 0;
  int64_t optimizer_state = 0;
  int64_t activations = 0;      // of one batch; of layers that are computed again, the one that needs most
  int64_t batch = 0;            // the batch itself
  int64_t checkpoint_copy = 0;  // of the host, while a checkpoint is written in the background; not in the total
  int64_t total() const { return weights + gradients + optimizer_state + activations + batch; }
};

/// What a recipe comes to.
struct Explanation {
  std::string name;
  std::string path;
  std::vector<LayerSummary> layers;  // the fields of the batch first
  std::vector<FusedSummary> fused;
  std::map<std::string, int64_t> positions;  // "without padding": how many layers compute only those
  std::vector<RecomputedSummary> recomputed;
  int64_t parameters = 0;
  int64_t trainable_parameters = 0;
  int64_t late_parameters = 0;               // of the trainable ones: those that learn from `unfreeze_at_epoch` on
  std::optional<int64_t> unfreeze_at_epoch;  // the recipe's
  int64_t flops = 0;                         // of one sample, forward
  std::string loss;
  std::vector<std::string> metrics;
  std::string optimizer;
  std::vector<GroupSummary> groups;
  std::string scheduler;  // "" for constant rates
  std::string monitor;    // the metric that the scheduler watches, or ""
  /// From the first step to the last, evenly; empty where the length is unknown. Of a scheduler that makes each rate
  /// from the one before, no more than the first two million steps.
  std::vector<RatePoint> rates;
  LengthSummary length;
  MemorySummary memory;
  std::vector<std::string> contract;  // what the recipe alone tells a run of its data (DataContract)
  nlohmann::json inferred;            // of the training data: `columns: auto`; null: nothing had to be
};

/// Builds what the recipe names in the shape mode and describes it. Opens no data, but for a table whose columns
/// are to be inferred. Throws RecipeError where a pattern
/// of `param_groups` matches nothing.
Explanation explain(const LoadedRecipe& loaded);

LengthSummary explain_length(const Recipe& recipe, const DatasetInfo& training_info);

/// For people, within 100 columns unless names or shapes are long.
std::string to_text(const Explanation& explanation);
nlohmann::ordered_json to_json(const Explanation& explanation);

}  // namespace trainrun
