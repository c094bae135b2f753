#pragma once

#include <span>
#include <string_view>

namespace trainrun {

/// A key of generation_config.json, which older models keep in config.json.
struct GenerationKey {
  enum class Use {
    kRead,       // as transformers does
    kMeansNone,  // changes no token here, for the reason `why`
    kRefused,    // changes tokens in a way that there is not, unless it has its neutral value or null
  };
  std::string_view name;
  Use use = Use::kRead;
  std::string_view why = {};
  std::string_view neutral = "null";  // as JSON
};

std::span<const GenerationKey> generation_keys();
/// Null for a key that is not known.
const GenerationKey* find_generation_key(std::string_view name);

}  // namespace trainrun
