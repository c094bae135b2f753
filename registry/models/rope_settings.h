#pragma once

#include <nlohmann/json.hpp>

#include <optional>

#include "registry/models/model_config.h"

namespace trainrun {

/// The parameters of a RotaryEmbedding for heads of `head_dim` features, by what config.json says: rope_theta and
/// rope_scaling, or rope_parameters as transformers 5 writes them. `longest`: max_position_embeddings. Throws DataError
/// for kinds of scaling that there are not.
nlohmann::json rope_settings(ModelConfig& config, const std::optional<double>& own_theta, int64_t head_dim,
                             int64_t longest);

}  // namespace trainrun
