#pragma once

#include <memory>

#include "registry/callbacks/text_samples.h"

namespace trainrun {

class Job;

/// The texts of a job's model, for its callbacks. The job must outlive it.
std::unique_ptr<TextSource> texts_of(Job& job);

}  // namespace trainrun
