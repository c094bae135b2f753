#pragma once

#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <vector>

#include "registry/catalog.h"
#include "runner/run/run_identity.h"
#include "runner/run/run_record.h"
#include "runner/train/progress.h"

namespace trainrun {

/// One of two things that are compared.
struct DiffSide {
  enum class Kind { kRecipe, kRun, kCheckpoint };
  std::string path;
  Kind kind = Kind::kRecipe;
  Value recipe;                     // resolved
  std::optional<RunRecord> run;     // of a run
  nlohmann::json state;             // of a checkpoint, or of a run's newest one; null: none
  std::optional<int64_t> step;      // of a run or checkpoint
  Figures figures;                  // of its last evaluation
  std::vector<RunChange> controls;  // what `trainrun ctl` changed until then
};

/// What differs between two recipes, runs or checkpoints, by what it means for a run of the first that would be gone on
/// with by the recipe of the second.
struct RunDiff {
  struct Change : RecipeChange {
    std::string why;  // it breaks a resume; "" where it does not
  };
  /// One line of a table; "" where a side has nothing.
  struct Row {
    std::string name, a, b;
    bool differs = false;
  };
  DiffSide a, b;
  std::vector<Change> changes;
  std::vector<std::string> data;  // sets of data that hold other values: each breaks a resume
  std::vector<Row> controls;      // what `trainrun ctl` changed in either
  std::vector<Row> figures;
  std::vector<Row> environment;
  std::vector<std::string> notes;

  bool is_equal() const;
  bool breaks_resume() const;
};

/// A recipe, a run's folder or a checkpoint's. Loads the recipe's plugins into `catalog`. Throws RecipeError, Error.
DiffSide read_side(const std::string& path, Catalog& catalog);
RunDiff compare_sides(DiffSide a, DiffSide b, const Catalog& catalog);

/// Lines of at most `width` columns, where single words allow that; 0: as long as they are.
std::string to_text(const RunDiff& diff, size_t width);
nlohmann::ordered_json to_json(const RunDiff& diff);

}  // namespace trainrun
