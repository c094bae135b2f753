#pragma once

#include <cstdint>
#include <string>

#include "tools/verbs.h"

namespace trainrun {

/// What `trainrun export --format python` is asked for besides.
struct ProgramExport {
  int64_t verify = 0;  // steps to compare; 0: none
  std::string python = "python3";
  double tolerance = 1e-5;
};

/// Writes the recipe, or that of a run, as a PyTorch program to `output`, NAME.py by default. Throws RecipeError where
/// something of it is not written, with its places.
void export_program(const RecipeArguments& arguments, const std::string& output, const ProgramExport& options,
                    Program& program);

}  // namespace trainrun
