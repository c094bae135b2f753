#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "registry/formats/files/file_io.h"

namespace trainrun {

/// The folders of runs with one output_dir, "runs/a": that one, runs/a-2, runs/a-3, …; `number` counts from 1.
std::string numbered_path(const std::string& output_dir, int64_t number);

/// The folder in which one run lives, held by this process alone until the object goes.
class RunFolder {
 public:
  enum class Resume {
    kAuto,   // go on with an unfinished run of the same recipe
    kNever,  // always a new run
  };
  /// What a recipe.yaml that was found in a folder has to do with this run.
  struct Kinship {
    bool is_same = false;
    std::string difference;              // for another run: how it differs, or ""
    std::vector<std::string> changes{};  // for the same one: what is otherwise than before and changes no numbers
  };
  /// Compares such a recipe with the run's. What it throws, `open` throws: a recipe that cannot be read now may well be
  /// that of this run.
  using Compare = std::function<Kinship(const std::string& recipe_path)>;

  /// What recipe.yaml is to hold.
  struct RecipeFile {
    std::string text;
    bool is_private = false;  // for nobody's eyes but the owner's: it speaks of secrets
  };

  /// Takes the first of `output_dir`, `output_dir-2`, `-3`, … that is new, empty, or holds an unfinished run of the
  /// same recipe (for kNever only one that saved nothing); a run is finished once summary.json is there. Folders that
  /// another process holds are passed over, and of processes that start at the same moment only one gets a folder. A new
  /// run's recipe.yaml becomes `recipe`, that of an unfinished one with `keep_changes`; what a killed process of an earlier start left half-written is removed; nothing else
  /// that was there is changed. Throws FileError, ReadError where the system does not let us look or write.
  static RunFolder open(const std::string& output_dir, const RecipeFile& recipe, const Compare& compare, Resume resume);

  const std::string& path() const { return path_; }
  /// An unfinished run of the same recipe was here; it may have saved nothing.
  bool continues() const { return continues_; }
  /// What the user should read: "runs/x holds another run; this one goes to runs/x-2".
  const std::vector<std::string>& notes() const { return notes_; }

  /// What recipe.yaml holds.
  const std::string& recipe_text() const { return recipe_.text; }
  bool is_private() const { return recipe_.is_private; }
  std::string recipe_path() const { return path_ + "/recipe.yaml"; }
  std::string log_path() const { return path_ + "/log.txt"; }
  std::string metrics_path() const { return path_ + "/metrics.jsonl"; }
  std::string checkpoints_path() const { return path_ + "/checkpoints"; }
  std::string summary_path() const { return path_ + "/summary.json"; }

  /// Where the folder was removed or renamed while the run went on, makes it anew, with its lock and recipe.yaml, so
  /// that what is saved next is not lost. Returns whether it had to. Throws FileError, and Error where another process
  /// has taken the name.
  bool make_whole();
  /// Writes recipe.yaml anew where this start changes something in it: once it is known that the run goes on.
  void keep_changes();
  /// Writes summary.json: from now on the run counts as finished.
  void finish(const std::string& summary_json);

 private:
  RunFolder() = default;
  bool is_still_there() const;
  void write_recipe() const;
  void remove_leftovers() const;

  std::string path_;
  bool continues_ = false;
  bool has_changes_ = false;  // that recipe.yaml does not have yet
  RecipeFile recipe_;
  std::vector<std::string> notes_;
  Descriptor lock_;
};

/// Whether a process holds the folder of a run; true also where that cannot be told. On this machine it takes no lock,
/// which would be in the way of a run that begins at this moment.
bool is_run_in_use(const std::string& path);

/// Drops from a metrics.jsonl the lines of steps after `step`, which a resumed run writes again, and what is no whole
/// line, such as one that was being written when the run was killed; with `evaluation_due` also the evaluation's of
/// `step`. In one instant; returns how many lines went. No file: 0.
int64_t truncate_metrics(const std::string& path, int64_t step, bool evaluation_due = false);

}  // namespace trainrun
