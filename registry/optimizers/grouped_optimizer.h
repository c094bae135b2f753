#pragma once

#include <string>
#include <utility>
#include <vector>

#include "registry/optimizer.h"

namespace trainrun {

/// What optimizers with one state tensor (or several) for each parameter share: the lists, their names in a checkpoint,
/// and which parameters have a gradient.
class GroupedOptimizer : public Optimizer {
 public:
  NamedTensors state() override;

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

  std::vector<Group> groups_;
  std::vector<std::string> list_names_;
};

}  // namespace trainrun
