#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runner/model/model.h"
#include "runner/train/resources.h"

namespace trainrun {

/// What a rank of a parallel model will keep and send: foreseen from the recipe, as DataParallel and ShardedModel do
/// it. Bytes are of a rank's own tensors, as ProcessGroup::traffic counts them.
struct CommunicationPlan {
  int64_t parameters_bytes = 0;  // kept between steps
  int64_t gradients_bytes = 0;
  NamedTensors parameters;            // what the optimizer changes; without memory
  int64_t gathered_bytes = 0;         // most of whole parameters at a time, where they are sharded
  int64_t whole_gradients_bytes = 0;  // most of whole gradients at a time, where they are sharded
  int64_t num_units = 0;              // that are sharded as one
  std::vector<TrafficLine> start;     // before the first step
  std::vector<TrafficLine> first_step;
  std::vector<TrafficLine> step;  // each one after the first; of a full window of accumulation

  // Bytes of whole tensors, one number a collective, in order: what each forward and each backward pass gathers, and
  // what each backward pass, or the window's last, reduces.
  std::vector<int64_t> forward_gathers;
  std::vector<int64_t> backward_gathers;
  std::vector<int64_t> reductions;
  bool reduces_every_pass = false;
};

/// `model` may be one without memory. `rank`: whose parts are told where there are parts. Throws RecipeError where the
/// recipe's communication hook cannot be built.
CommunicationPlan plan_communication(const Recipe& recipe, Model& model, int64_t world_size, int64_t rank);

/// Adds to the line of `purpose` and `operation`, which is made where there is none.
void add_traffic(std::vector<TrafficLine>& lines, const std::string& purpose, const std::string& operation,
                 int64_t calls, int64_t bytes);

}  // namespace trainrun
