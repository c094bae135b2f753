#pragma once

#include <string>
#include <vector>

#include "runner/train/job.h"

namespace trainrun {

/// What is no fault of a job, but hardly meant, and can be told only now that its data are open and its steps are
/// known: features or targets of an unusual size, classes learnt as numbers, a schedule or an average that the job ends
/// before, packing that leaves hardly any steps. A sentence each, without what `notes_of_all` tells.
std::vector<std::string> job_notes(const Job& job);

}  // namespace trainrun
