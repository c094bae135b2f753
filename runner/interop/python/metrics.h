#pragma once

#include <string>
#include <vector>

#include "runner/interop/python/source_file.h"
#include "runner/interop/python/wiring.h"

namespace trainrun::python {

struct Figure {
  std::string name;        // "accuracy"
  std::string expression;  // of the variables, over all samples: a number
};

/// The recipe's metrics; those that are not written are noted.
std::vector<Figure> write_metrics(const Recipe& recipe, const Wiring& wiring, SourceFile& file);

}  // namespace trainrun::python
