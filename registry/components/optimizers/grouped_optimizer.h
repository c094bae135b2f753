#pragma once

#include <string>
#include <utility>
#include <vector>

#include "registry/components/optimizers/before_step.h"
#include "registry/kinds/optimizer.h"

namespace trainrun {

/// Multiplies the gradients by each factor, in place.
void multiply(const Tensors& gradients, const Tensors& factors);

/// What optimizers with one state tensor (or several) for each parameter share: the lists, their names in a checkpoint,
/// and which parameters have a gradient.
class GroupedOptimizer : public Optimizer {
 public:
  NamedTensors state() override;
  bool skips_overflow() const override { return true; }
  bool takes_factors() const override { return true; }
  void last_step_was_skipped() override;

 protected:
  /// State of one group: `lists[k][i]` is list k of parameter i.
  struct Group {
    ParameterGroup parameters;
    std::vector<Tensors> lists;
  };

  /// The parameters of one group that have a gradient now, with gradients laid out as they are, and their state.
  struct Active {
    Tensors parameters;
    Tensors gradients;
    std::vector<Tensors> lists;
    std::vector<size_t> indices;  // in the group
  };

  GroupedOptimizer(OptimizerInputs inputs, std::vector<std::string> list_names);

  Active active(const Group& group) const;
  /// Whether all of them can be changed by an OptimizerPass in this step.
  static bool is_for_pass(const Active& now, const StepContext& context);

  /// At the beginning of a step, and where state is loaded: the step before it cannot be taken back any more.
  void forget_last_step();
  /// A step has begun this state, which was undefined.
  void note_begun(at::Tensor& state, const StepContext& context) {
    if (context.overflow.defined()) begun_.push_back(&state);
  }
  /// A step that may be skipped has changed what `before` has kept.
  void note_numbers(const BeforeStep& before);

  std::vector<Group> groups_;
  std::vector<std::string> list_names_;

 private:
  // What the last step has done on the host, where a skipped one must be taken back:
  std::vector<std::pair<at::Tensor, at::Tensor>> numbers_;  // and what they were before
  std::vector<at::Tensor*> begun_;                          // in groups_
};

}  // namespace trainrun
