#pragma once

#include <string>

#include "registry/generation_options.h"

namespace trainrun {

/// `options`, and over them what the folder's generation_config.json says, or config.json's eos_token_id; as it is where
/// there is neither. Throws DataError, which names file and key.
GenerationOptions with_generation_config(GenerationOptions options, const std::string& folder);

}  // namespace trainrun
