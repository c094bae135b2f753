#pragma once

#include <string>
#include <vector>

#include "runner/interop/python/source_file.h"
#include "runner/recipe/recipe.h"

namespace trainrun::python {

/// Optimizers and schedules, as `train` makes and uses them.
struct Optimization {
  std::vector<std::string> statements;  // that make them
  std::vector<std::string> optimizers;  // the variables
  std::vector<std::string> schedulers;  // the variables; of as many optimizers, or none
  bool by_epoch = false;                // schedulers go on by epochs, not by steps
  bool evaluates_again = false;         // an optimizer wants a closure
  bool has_factors = false;             // layers have rates of their own
  bool needs_total = false;             // they read `total_steps`, or `total_epochs` where they go on by epochs
};

Optimization write_optimization(const Recipe& recipe, SourceFile& file);

}  // namespace trainrun::python
