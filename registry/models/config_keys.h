#pragma once

#include <string_view>

namespace trainrun {

/// Whether this key of a config.json is known to change nothing about a model here, whatever its value.
bool means_nothing_to_models(std::string_view key);

}  // namespace trainrun
