#include "runner/foresight/micro_batch.h"

#include <filesystem>

#include "registry/language/error.h"
#include "runner/base/text.h"
#include "runner/device/free_memory.h"
#include "runner/recipe/recipe_defaults.h"
#include "runner/recipe/recipe_source.h"
#include "runner/run/run_folder.h"

namespace trainrun {
namespace {

constexpr double kUsableShare = 0.9;  // of the free memory: other programs move, too

/// The number in the recipe that a run keeps; 0 where there is none.
int64_t kept_size(const std::string& recipe_path) {
  const ResolvedRecipe kept = resolve_recipe(recipe_path, {});
  const Value* dataloader = kept.value.find("dataloader");
  const Value* size = dataloader ? dataloader->find("micro_batch_size") : nullptr;
  if (!size || !size->is_scalar() || size->scalar_type() != ScalarType::kInteger) return 0;
  return static_cast<int64_t>(parse_number(size->text()).value_or(0));
}

/// The recipe of the newest run of this name: of runs/a, runs/a-2, runs/a-3, … the last one.
std::string newest_kept_recipe(const Recipe& recipe) {
  const std::string output_dir = output_folder(recipe);
  std::string newest;
  std::error_code ignored;
  for (int64_t number = 1;; ++number) {
    const std::string path = numbered_path(output_dir, number) + "/recipe.yaml";
    if (!std::filesystem::exists(path, ignored)) return newest;
    newest = path;
  }
}

}  // namespace

MicroBatch find_micro_batch(const LoadedRecipe& loaded, const Rehearse& rehearse) {
  const Recipe& recipe = loaded.recipe;
  const int64_t own = recipe.dataloader.batch_size;
  if (const std::string path = newest_kept_recipe(recipe); !path.empty() && recipe.checkpoint.resume != "no") {
    const int64_t size = kept_size(path);
    if (size > 0 && own % size == 0) return {size, "as " + path + " keeps it"};
  }
  const auto limit = static_cast<int64_t>(kUsableShare * static_cast<double>(free_memory()));
  const Demand demand = foresee(loaded, explain(loaded), {.bytes = limit, .wants_time = false}, rehearse);
  const std::string room = "of " + bytes_text(static_cast<double>(limit)) + ", nine tenths of what is free";
  if (demand.fits->holds) {
    return {own, "whole batches take " + bytes_text(static_cast<double>(demand.peak_bytes)) + " " + room};
  }
  if (demand.fits->batch_size == 0) {
    throw Error("dataloader.micro_batch_size: auto: the job does not fit into the memory " + room + ": " +
                demand.fits->remark);
  }
  return {demand.fits->batch_size, "the most that fits into the memory " + room + ", where whole batches take " +
                                       bytes_text(static_cast<double>(demand.peak_bytes))};
}

}  // namespace trainrun
