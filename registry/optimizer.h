#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "registry/layer.h"
#include "registry/named_tensors.h"
#include "registry/registry.h"

namespace trainrun {

/// What schedulers may change of a parameter group.
struct GroupRates {
  double lr = 0;
  std::optional<double> momentum;  // SGD's momentum, Adam's first beta; nothing where the optimizer has neither
  double lr_scale = 1;             // of the layers' own; `lr` is without it until scale_rates
};

/// Multiplies each group's learning rate, as a recipe or a scheduler says it, by its scale.
void scale_rates(std::vector<GroupRates>& rates);

/// The parameters that share their options.
struct ParameterGroup {
  std::vector<std::string> names;  // state names, as many as tensors
  Tensors tensors;
  std::shared_ptr<const void> options;  // the optimizer's own struct, with what the group's pattern overrides
  double lr_scale = 1;
  /// The rates to begin with.
  GroupRates rates(double lr, std::optional<double> momentum) const { return {lr, momentum, lr_scale}; }
};

struct OptimizerInputs {
  /// The patterns' groups in the recipe's order, then the default one; one that holds several scales of the learning
  /// rate as one group each. None is empty.
  std::vector<ParameterGroup> groups;
  template <class C>
  const C& options(size_t group) const {
    return *static_cast<const C*>(groups[group].options.get());
  }
};

/// Recomputes loss and gradients of the current batch; for optimizers that look more than once.
using LossClosure = std::function<at::Tensor()>;

/// Changes parameters from their gradients.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// One step from the gradients that the parameters hold, with `rates`. A parameter without a gradient is left as it
  /// is.
  virtual void step(const LossClosure& closure) = 0;
  /// What a checkpoint keeps, by name ("0.weight.exp_avg"); the tensors themselves, not copies.
  virtual NamedTensors state() = 0;
  /// Takes back what `state` gave. Throws Error where a name is missing or a shape differs.
  virtual void load_state(const std::map<std::string, at::Tensor>& saved);
  /// Whether each element of a parameter changes by itself, whatever the others are: then ranks may keep pieces of
  /// parameters.
  virtual bool is_elementwise() const { return false; }
  /// Whether `step` leaves everything as it is where `overflow` is 1, without the host's knowing; others are called
  /// only after the host has read it.
  virtual bool skips_overflow() const { return false; }
  /// For those: whether the gradients of the next step overflowed, a float32 scalar beside the parameters; undefined
  /// where they did not.
  at::Tensor overflow;
  /// Of each group, for the next step.
  std::vector<GroupRates> rates;
};

/// `{match: 'bias$', weight_decay: 0}`: a regular expression searched in state names, and what its parameters do
/// otherwise.
struct GroupSpec {
  std::string match;
  Place place;
  Value overrides;                      // the mapping without `match`
  std::shared_ptr<const void> options;  // read with the overrides
};

template <>
struct Codec<GroupSpec> {
  static std::optional<GroupSpec> read(const Value& value, Reader& reader);
  static nlohmann::json schema(SchemaContext& context);
  static nlohmann::json write(const GroupSpec& value) { return {{"match", value.match}}; }
  static std::string type_name() { return "{match: PATTERN, parameter: value, …}"; }
};

/// In which an optimizer keeps its running averages between steps.
enum class StateDtype { kFp32, kBf16 };
template <>
struct Words<StateDtype> {
  static constexpr std::array kWords = {"fp32", "bf16"};
};

struct OptimizerCommon {
  std::vector<GroupSpec> param_groups;
  StateDtype state_dtype = StateDtype::kFp32;
  static void describe(Fields<OptimizerCommon>& f);
};

struct OptimizerKind {
  static constexpr const char* kName = "optimizer";
  using Inputs = OptimizerInputs;
  using Product = std::unique_ptr<Optimizer>;
  using Common = OptimizerCommon;
  /// Reads the options of each group.
  static void finish(Component<OptimizerKind>& optimizer, const Value& map, Reader& reader);
};
using OptimizerRegistry = Registry<OptimizerKind>;
const OptimizerRegistry& registry_of(const Catalog& catalog, OptimizerKind);

/// Sorts the parameters that want a gradient into groups: the first pattern that matches wins, the rest is the default
/// group. `lr_scales`: by state name, where it is not 1. Throws RecipeError at the place of a pattern that matches
/// nothing.
OptimizerInputs group_parameters(const Component<OptimizerKind>& optimizer, const NamedTensors& parameters,
                                 const std::map<std::string, double>& lr_scales = {});

/// Keeps the state that `optimizer` has in float32 as bfloat16 between steps, which halves it while the next step's
/// activations need memory; it computes in float32. Rounding is stochastic (Source: Gupta et al. 2015, "Deep Learning
/// with Limited Numerical Precision"). `inputs`: what it was built with.
std::unique_ptr<Optimizer> with_low_precision_state(std::unique_ptr<Optimizer> optimizer,
                                                    const OptimizerInputs& inputs);

}  // namespace trainrun
