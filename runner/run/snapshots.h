#pragma once

#include <map>
#include <string>

#include "registry/kinds/snapshot.h"
#include "runner/run/checkpoint_store.h"

namespace trainrun {

/// What a run keeps, by part: "model", "optimizer", "scheduler", "callbacks[0]".
using Snapshots = std::map<std::string, Snapshot>;

/// The part whose values are state.json's own keys ("step", "epoch"); those of another part are one key of its name.
constexpr const char* kProgressPart = "progress";

/// As a checkpoint's files have them: the tensors of "model" and "optimizer" by their names, those of another part in
/// the optimizer's file, as "comm_hook.NAME". A part whose values are `discarded` has no key.
CheckpointContent content_of(const Snapshots& parts);

/// The other way round: of the parts called `names`, those that the checkpoint has; "progress" gets all that state.json
/// holds.
Snapshots parts_of(const CheckpointContent& content, const std::vector<std::string>& names);

/// Copies the tensors into the host's memory, so that training may go on while they are written. What several names
/// share is copied once; memory that nobody else holds, such as that of tensors gathered from ranks, is taken as it is.
void make_own(Snapshots& parts);

/// Whether training gains by such a copy, if a save comes every so many seconds: not where it would train for less time
/// than the copy takes.
bool is_worth_own(const Snapshots& parts, double seconds_between);

}  // namespace trainrun
