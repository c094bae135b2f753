#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runner/run/checkpoint_files.h"

namespace trainrun {

struct RetentionPolicy {
  int64_t keep_last = 0;   // the newest so many are kept; 0: all
  bool keep_best = false;  // and the best one, however old
};

/// At the end of the name of a checkpoint of its step whose weights are those of an earlier one (restore_best).
inline constexpr const char* kRestoredMark = "-restored";

/// Whether this is a name that checkpoints have: `epoch-0003`, `step-00000120`, `epoch-0003-restored`. Folders of any other name beside them
/// are the user's own, and stay as they are.
bool is_checkpoint_name(std::string_view name);

/// The checkpoints of one run: RUN/checkpoints/NAME/{model.safetensors, optimizer.safetensors, state.json}, and the
/// links `latest` and `best`. A process killed at any instant, a full disk or a failing one leave every checkpoint that
/// was there before, and a new one appears whole or not at all. One process at a time may change a folder (RunFolder's
/// lock sees to that); any may read it.
class CheckpointStore {
 public:
  CheckpointStore(std::string folder, RetentionPolicy policy);

  /// Writes a checkpoint beside the others, syncs it to disk, gives it its name (replacing one of the same name), moves
  /// `latest` and, for `is_best`, `best`; only then removes what the policy lets go. Returns its path. Throws Error;
  /// then nothing that was there before is lost.
  std::string save(const std::string& name, const CheckpointContent& content, bool is_best);
  /// The two halves of `save`: the checkpoint is on the disk, under its name; and the policy is applied, which never
  /// removes `newest`.
  std::string add(const std::string& name, const CheckpointContent& content, bool is_best);
  void apply_retention(const std::string& newest);
  /// Gives an existing checkpoint another state, in one instant, and where `is_best` makes it `best`: what an
  /// evaluation that comes after saving adds. Throws Error; then the checkpoint is whole, with the old state or the
  /// new.
  void amend(const std::string& name, const nlohmann::json& state, bool is_best);
  /// Names of the checkpoints whose files are all there and as long as they should be, by step, oldest first. Throws
  /// UnusableCheckpoint as `newest` does.
  std::vector<std::string> list() const;
  /// The path of the newest checkpoint whose digests hold, or nothing where there are no checkpoints; damaged ones are
  /// reported and passed over. Also repairs what a killed `save` left: unfinished checkpoints go, the links are set
  /// right. Throws CheckpointError where there are checkpoints and every one of them is damaged, UnusableCheckpoint
  /// where one of them may be whole and cannot be read.
  std::optional<std::string> newest(const std::function<void(const std::string&)>& warn);

  /// As `newest`, but changes nothing: for those who only read a run, perhaps while it goes on. Looks again where what it
  /// found is removed meanwhile; throws RemovedCheckpoint where that happens each time.
  static std::optional<std::string> find_newest(const std::string& folder,
                                                const std::function<void(const std::string&)>& warn);
  /// Checks every digest; returns the state as it was saved. Throws CheckpointError naming file, expected and found
  /// digest; RemovedCheckpoint, UnusableCheckpoint.
  static nlohmann::json verify(const std::string& path);
  /// Reads a checkpoint (or what a link names), checking every digest on the way. Throws CheckpointError as `verify`
  /// does.
  static CheckpointContent load(const std::string& path);
  /// How often a checkpoint is chosen anew where the one that was chosen is removed before it is read.
  static constexpr int kMostChoices = 20;

 private:
  std::string path_of(const std::string& name) const;
  void put_in_place(const std::string& from, const std::string& name);
  void discard(const std::string& name);
  void remove_leftovers();

  std::string folder_;
  RetentionPolicy policy_;
};

}  // namespace trainrun
