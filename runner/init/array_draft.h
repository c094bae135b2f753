#pragma once

#include <string>

#include "runner/init/draft.h"

namespace trainrun {

/// Of a file of arrays with a row for each sample: .npz, .safetensors.
Draft draft_arrays(const std::string& path, const InitOptions& options);

}  // namespace trainrun
