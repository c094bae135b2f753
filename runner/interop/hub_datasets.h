#pragma once

#include <string>
#include <vector>

#include "registry/language/value.h"

namespace trainrun {

/// The data sets of Hugging Face's hub ("org/name") that data, or data within them, are read from, each once. `data`: of
/// a recipe, also with the paths of the hub's cache in the place of what it names there.
std::vector<std::string> hub_datasets_of(const Value& data);

/// A path as the hub has it ("hf://datasets/org/name@COMMIT/a.csv"), where it lies in the hub's cache on this machine; any
/// other as it is.
std::string public_path(const std::string& path);

}  // namespace trainrun
