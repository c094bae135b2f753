#pragma once

#include <functional>
#include <string>

namespace trainrun {

/// The checkpoint that `checkpoint.resume` names: `path` itself, or the newest whole one where it is a run's folder.
/// `warn` hears of damaged ones that are passed over. Throws Error where such a folder has no whole one.
std::string checkpoint_to_go_on_from(const std::string& path, const std::function<void(const std::string&)>& warn);

/// Whether a job whose output_dir is `folder`, or which `resume` (checkpoint.resume), may go on from a checkpoint: there is
/// one of an unfinished run there. Whether it is of this job is not looked at.
bool may_go_on(const std::string& folder, const std::string& resume);

/// How to go on with the finished run in `folder`: "; to go on from where it ended, add checkpoint.resume=runs/a"; ""
/// where it has no checkpoint.
std::string way_to_go_on(const std::string& folder);

}  // namespace trainrun
