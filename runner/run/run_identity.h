#pragma once

#include <string>
#include <vector>

#include "registry/language/value.h"

namespace trainrun {

/// How two resolved recipes differ, each difference by its key: "optimizer.lr was 0.1 and is 0.2". Texts are not
/// quoted: they may be secrets.
struct RecipeDifference {
  std::vector<std::string> numbers;  // what changes the numbers of a run: it is another one
  std::vector<std::string> others;   // where it lies, how long it goes on, what it says and keeps: the run goes on
};

/// Compares what recipes say, not how: a default written or left out, `ReLU` or {type: ReLU}, 1e-3 or 0.001, two paths
/// of one file are the same. `evaluation_counts`: when evaluations come changes the rates, as those of
/// ReduceLROnPlateau.
RecipeDifference compare_recipes(const Value& before, const Value& now, bool evaluation_counts);

}  // namespace trainrun
