#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "registry/files/file_io.h"

namespace trainrun {

/// The folder in which one run lives, held by this process alone until the object goes.
class RunFolder {
 public:
  enum class Resume {
    kAuto,   // go on with an unfinished run of the same recipe
    kNever,  // always a new run
  };
  /// Does this recipe.yaml, found in a folder, say the same job? An Error it throws means no.
  using SameRecipe = std::function<bool(const std::string& recipe_path)>;

  /// Takes the first of `output_dir`, `output_dir-2`, `-3`, … that is new, empty, or (for kAuto) holds an unfinished
  /// run of the same recipe; a run is finished once summary.json is there. Folders that another process holds are
  /// passed over, and of processes that start at the same moment only one gets a folder. A new run's folder holds
  /// `recipe_yaml` as recipe.yaml. Nothing that was there is changed. Throws FileError where it cannot write.
  static RunFolder open(const std::string& output_dir, const std::string& recipe_yaml, const SameRecipe& same_recipe,
                        Resume resume);

  const std::string& path() const { return path_; }
  /// An unfinished run was here; it may have saved no checkpoint yet.
  bool continues() const { return continues_; }
  /// What the user should read: "runs/x holds another run; this one goes to runs/x-2".
  const std::vector<std::string>& notes() const { return notes_; }

  std::string recipe_path() const { return path_ + "/recipe.yaml"; }
  std::string log_path() const { return path_ + "/log.txt"; }
  std::string metrics_path() const { return path_ + "/metrics.jsonl"; }
  std::string checkpoints_path() const { return path_ + "/checkpoints"; }
  std::string summary_path() const { return path_ + "/summary.json"; }

  /// Writes summary.json: from now on the run counts as finished.
  void finish(const std::string& summary_json) const;

 private:
  RunFolder() = default;

  std::string path_;
  bool continues_ = false;
  std::vector<std::string> notes_;
  Descriptor lock_;
};

/// Drops from a metrics.jsonl the lines of steps after `step`, which a resumed run writes again, and what is no whole
/// line, such as one that was being written when the run was killed; with `evaluation_due` also the evaluation's of
/// `step`. In one instant; returns how many lines went. No file: 0.
int64_t truncate_metrics(const std::string& path, int64_t step, bool evaluation_due = false);

}  // namespace trainrun
