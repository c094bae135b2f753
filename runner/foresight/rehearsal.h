#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runner/model/recipe_loader.h"

namespace trainrun {

/// What a job took, of memory and of time, while some of it was run: a few optimizer steps, an evaluation and a
/// checkpoint. Everything is of one process.
struct Rehearsal {
  int64_t batch_size = 0;
  int64_t steps = 0;               // that were timed
  double start_seconds = 0;        // from the start of the process to its first step
  double build_seconds = 0;        // of them, to open the data and build the model, which each fold does anew
  double step_seconds = 0;         // of an optimizer step, by the clock
  double step_cpu_seconds = 0;     // and of all threads together
  double evaluation_seconds = 0;   // of one whole evaluation
  int64_t evaluated_batches = 0;   // from which it follows,
  int64_t evaluation_batches = 0;  // of so many
  double copy_seconds = 0;         // a checkpoint: what training waits for,
  double write_seconds = 0;        // and what is done beside it (checkpoint.background)
  double write_cpu_seconds = 0;

  std::optional<int64_t> total_steps;  // of one fold; nothing where only the clock or the tokens end the job
  int64_t steps_per_epoch = 0;
  int64_t tokens_per_step = 0;
  int64_t evaluations = 0;  // of one fold
  int64_t saves = 0;        // of one fold, where steps or epochs say when
  int64_t folds = 1;        // that are trained one after the other

  int64_t program_bytes = 0;  // resident before anything was built
  int64_t built_bytes = 0;    // resident once data, model and optimizer were there
  int64_t peak_bytes = 0;     // resident at most; on a GPU, of its memory
  int64_t shared_bytes = 0;   // of them, pages of files, which processes of one machine share
  bool on_gpu = false;
  std::vector<std::string> notes;  // what else may happen in the whole job
};

/// What a rehearsal is for: its memory alone is known after a few steps, its time after seconds.
enum class RehearsalAim { kMemory, kMemoryAndTime };

/// Runs some of the job in this process, for two seconds or more if its time is wanted: first the batch with the longest samples, where they
/// have lengths. Opens the data; writes nothing but a checkpoint, where the recipe's runs would lie, which it removes.
/// Of several ranks it is the first, alone. Throws what building and training throw.
Rehearsal rehearse(const LoadedRecipe& loaded, RehearsalAim aim);

nlohmann::json to_json(const Rehearsal& rehearsal);
Rehearsal rehearsal_of(const nlohmann::json& json);

}  // namespace trainrun
