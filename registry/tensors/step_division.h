#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace trainrun {

/// What ranks need to divide an optimizer's step.
struct DivisibleStep {
  std::vector<at::Tensor> state;  // of which each rank changes only its share; lies in common memory then
  int64_t exchange_bytes = 0;
};

/// How the ranks of one machine divide a step that all of them would make alike: each changes its share of the elements.
/// The optimizer's state lies once in memory that all map; changed parameters go through `exchange`.
struct StepDivision {
  int64_t rank = 0;
  int64_t ranks = 1;
  char* exchange = nullptr;            // DivisibleStep::exchange_bytes
  std::function<void()> wait_for_all;  // until every rank has called it
  std::shared_ptr<void> memory;        // keeps `exchange`
};

/// An optimizer whose step ranks with the same parameters, gradients and state can divide, with the same result.
class DividesStep {
 public:
  virtual ~DividesStep() = default;
  /// Nothing where it cannot, with the parameters that it has.
  virtual std::optional<DivisibleStep> divisible_step() = 0;
  /// From now on; `division` outlives the last step.
  void divide(const StepDivision& division) { division_ = &division; }

 protected:
  const StepDivision* division_ = nullptr;  // null: each rank makes the whole step
};

}  // namespace trainrun
