#pragma once

#include <nlohmann/json.hpp>

#include <string>

#include "registry/kinds/dataset.h"

namespace trainrun {

/// What the numbers in the fields of a data set are called, where they have names: {"classes": {"label": ["ant", "bee"]},
/// "columns": {"features": ["age", "city=Rome"]}}. `data` is open and has learnt.
nlohmann::json names_of_fields(const Dataset& data);
/// Throws DataError where the numbers in a field of `data` have other names than in the training data, of which
/// `trained` is what `names_of_fields` gives, or the same ones in another order. `path`: of `data`, for the message.
void require_same_names(const nlohmann::json& trained, const Dataset& data, const std::string& path);

}  // namespace trainrun
