#pragma once

#include <string>
#include <vector>

#include "runner/interop/python/source_file.h"
#include "runner/recipe/recipe.h"

namespace trainrun::python {

/// In which order samples come.
struct Sampling {
  std::vector<std::string> statements;  // of `train`, behind those that make train_data
  std::string argument;                 // of the DataLoader: ", sampler=sampler"
  std::vector<std::string> each_epoch;  // statements at the beginning of an epoch
};

Sampling write_sampling(const Recipe& recipe, SourceFile& file);

}  // namespace trainrun::python
