#pragma once

#include <string>
#include <vector>

#include "runner/generate/generation_settings.h"

namespace trainrun {

/// `options`, and over them what the folder's generation_config.json says or, where there is none, config.json, in which
/// older models keep the same; as it is where there is neither. Every key is read as transformers reads it, or known to
/// change nothing, or refused, or named in `notes`. Throws DataError, which names file and key.
GenerationSettings with_generation_config(GenerationSettings options, const std::string& folder,
                                          std::vector<std::string>& notes);

}  // namespace trainrun
