#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "registry/catalog.h"
#include "runner/model/recipe_loader.h"

namespace trainrun::python {

struct VerificationOptions {
  int64_t steps = 50;
  std::string python = "python3";
};

/// What trainrun and the program computed from the same initial weights and batches.
class Verification {
 public:
  std::vector<std::string> changes;  // of the recipe, for the comparison
  std::vector<double> losses;        // of trainrun's steps
  std::vector<double> others;        // of the program's
  struct Figure {
    std::string name;
    double own;
    double other;
  };
  std::vector<Figure> figures;  // of the last evaluation, those that both have

  /// The largest difference of two losses of a step, relative to the larger one. Losses that pass through 0, where no
  /// digit of them counts, are compared with their mean size.
  double worst() const;

 private:
  double mean_size() const;
};

/// Trains in a process of each. Throws Error where one of them fails, with what it said last.
Verification verify_program(const LoadedRecipe& loaded, const Catalog& catalog, const VerificationOptions& options);

}  // namespace trainrun::python
