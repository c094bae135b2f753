#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "registry/generation_options.h"

namespace trainrun {

/// What somebody says of how a text goes on; nothing where they say nothing.
struct GenerationWishes {
  std::optional<int64_t> max_new_tokens;
  std::optional<double> temperature;  // 0: always the most probable token
  std::optional<int64_t> top_k;
  std::optional<double> top_p;
  std::optional<double> repetition_penalty;
};

/// `options`, and over them what the folder's generation_config.json says, or config.json's eos_token_id; as it is where
/// there is neither. Throws DataError, which names file and key.
GenerationOptions with_generation_config(GenerationOptions options, const std::string& folder);
/// `options` with these wishes over them: temperature, top_k or top_p mean that tokens are drawn.
GenerationOptions with_wishes(GenerationOptions options, const GenerationWishes& wishes);

}  // namespace trainrun
