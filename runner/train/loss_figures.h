#pragma once

#include <string>
#include <vector>

#include "runner/distributed/process_group.h"
#include "runner/model/model.h"
#include "runner/recipe/recipe.h"

namespace trainrun {

/// sums += weight * parts, where these are means over samples; what adds up over samples does so.
void add_parts(std::vector<double>& sums, const LossValue& losses, double weight);

/// Adds up a step's loss, and its parts, over ranks.
double sum_over_ranks(ProcessGroup& group, double loss, std::vector<double>& parts);

/// The loss of an evaluation, and each of several: of all samples as of one batch, however they were cut into batches.
class EvaluatedLosses {
 public:
  explicit EvaluatedLosses(const Recipe& recipe)
      : means_(1 + (recipe.loss.size() > 1 ? recipe.loss.size() : 0)), sums_(means_.size()) {}

  /// What a batch of `size` samples gave.
  void add(const LossValue& losses, int64_t size);
  /// Adds what the other ranks have; collective.
  void merge(ProcessGroup& group);
  /// 0: of what is minimized; i + 1: of loss i of several.
  double figure(size_t i) const { return means_[i] / samples_ + sums_[i]; }

 private:
  std::vector<double> means_;  // of losses that average over samples, times the samples
  std::vector<double> sums_;   // of those with `reduction: sum`
  double samples_ = 0;
};

}  // namespace trainrun
