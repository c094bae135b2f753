#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "registry/kinds/layer.h"
#include "registry/language/registry.h"
#include "registry/tensors/named_tensors.h"

namespace trainrun {

/// The part of a parameter group that schedulers may change.
struct GroupRates {
  double lr = 0;
  std::optional<double> momentum;  // SGD's momentum, Adam's first beta; empty if the optimizer has neither
  double lr_scale = 1;             // the `lr_scale` of its layers; `lr` does not include it until scale_rates
};

/// Multiplies each group's learning rate, as set by the recipe or a scheduler, by its scale.
void scale_rates(std::vector<GroupRates>& rates);

/// The parameters that share their options.
struct ParameterGroup {
  std::vector<std::string> names;  // state names, as many as tensors
  Tensors tensors;
  std::shared_ptr<const void> options;  // the optimizer's own struct, with the overrides of the group's pattern
  double lr_scale = 1;
  /// The initial rates.
  GroupRates rates(double lr, std::optional<double> momentum) const { return {lr, momentum, lr_scale}; }
};

struct OptimizerInputs {
  /// The groups of the patterns in the recipe's order, then the default group. A group whose parameters have different
  /// lr_scales is divided into one group for each. No group is empty.
  std::vector<ParameterGroup> groups;
  template <class C>
  const C& options(size_t group) const {
    return *static_cast<const C*>(groups[group].options.get());
  }
};

/// Computes the loss and gradients of the current batch again, for optimizers that evaluate it more than once.
using LossClosure = std::function<at::Tensor()>;

/// What an optimizer is told of the step that it is to make. Tensors are scalars on the parameters' device: the host
/// does not read what a device has computed.
struct StepContext {
  std::vector<GroupRates> rates;  // of each group, in the order of `initial_rates`
  LossClosure closure = {};       // the gradients that it leaves are ready for use
  /// What the gradients have yet to be multiplied by, one after the other: the factor that clips them. Only for an
  /// optimizer that `takes_factors`; others get gradients that are ready for use.
  Tensors factors = {};
  /// Only for an optimizer that `skips_overflow`: a float32 scalar that is 1 if the gradients overflowed; undefined if
  /// they did not.
  at::Tensor overflow = {};
};

/// Changes parameters from their gradients.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// One step from the gradients that the parameters hold. A parameter without a gradient is left as it is.
  virtual void step(const StepContext& context) = 0;
  /// The tensors that a checkpoint keeps, by name ("0.weight.exp_avg"); not copies.
  virtual NamedTensors state() = 0;
  /// Restores what `state` returned. Throws Error if a name is missing or a shape differs.
  virtual void load_state(const std::map<std::string, at::Tensor>& saved);
  /// Whether the change of each element of a parameter is independent of the others, so that ranks may keep pieces of
  /// parameters.
  virtual bool is_elementwise() const { return false; }
  /// Whether `step` itself leaves everything unchanged if the context's `overflow` is 1, so that the host need not read
  /// it. Other optimizers are called only after the host has read it.
  virtual bool skips_overflow() const { return false; }
  /// Whether `step` itself multiplies the gradients by the context's factors, which saves a walk over them. The
  /// gradients themselves may stay as they are.
  virtual bool takes_factors() const { return false; }
  /// For one that skips: the host has learnt that the last step was skipped, and what the host counts goes back. Called
  /// before the next step and before `state`.
  virtual void last_step_was_skipped() {}
  /// The rates of each group as the recipe has them. A step gets its own.
  const std::vector<GroupRates>& initial_rates() const { return initial_rates_; }

 protected:
  /// Each group's, in the order of the inputs: called by the constructor.
  void add_group(const GroupRates& initial) { initial_rates_.push_back(initial); }

 private:
  std::vector<GroupRates> initial_rates_;
};

/// `{match: 'bias$', weight_decay: 0}`: a regular expression that is searched in state names, and other options for the
/// parameters that it matches.
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

/// The dtype in which an optimizer keeps its running averages between steps.
enum class StateDtype { kFp32, kBf16 };
template <>
struct Words<StateDtype> {
  static constexpr std::array kWords = {"fp32", "bf16"};
};

struct OptimizerCommon {
  std::vector<GroupSpec> param_groups;
  StateDtype state_dtype = StateDtype::kFp32;
  double layer_decay = 1;
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

/// Sorts the parameters that need a gradient into groups: the first pattern that matches wins, and the rest are the
/// default group. `lr_scales` are by state name, and 1 if missing. Throws RecipeError at the place of a pattern that
/// matches nothing.
OptimizerInputs group_parameters(const Component<OptimizerKind>& optimizer, const NamedTensors& parameters,
                                 const std::map<std::string, double>& lr_scales = {});

/// Keeps the state that `optimizer` has in float32 as bfloat16 between steps, which halves it while the next step's
/// activations need memory; it computes in float32. Rounding is stochastic (Source: Gupta et al. 2015, "Deep Learning
/// with Limited Numerical Precision"). `inputs`: what it was built with.
std::unique_ptr<Optimizer> with_low_precision_state(std::unique_ptr<Optimizer> optimizer,
                                                    const OptimizerInputs& inputs);

}  // namespace trainrun
