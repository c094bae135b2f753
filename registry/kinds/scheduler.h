#pragma once

#include <nlohmann/json.hpp>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "registry/kinds/optimizer.h"

namespace trainrun {

struct SchedulerInputs {
  std::vector<GroupRates> base;  // the groups' rates as the recipe sets them
  int64_t total_steps = 0;       // of the whole job, in the scheduler's own interval (steps or epochs)
};

/// Sets learning rates (and momenta) before each optimizer step.
class Scheduler {
 public:
  virtual ~Scheduler() = default;
  /// Sets the rates for the step that follows `t` finished steps (or epochs: `interval`). They are a function of `t`,
  /// of the inputs and, for schedulers that watch a metric, of the values passed to `observe`.
  virtual void set(int64_t t, std::vector<GroupRates>& rates) = 0;
  /// The metric it watches ("eval/loss"), or "".
  virtual std::string monitor() const { return ""; }
  /// Called after an evaluation with the new value of the watched metric.
  virtual void observe(double value) { static_cast<void>(value); }
  /// What a checkpoint keeps; null if `set` is a function of `t` alone.
  virtual nlohmann::json state() const { return nullptr; }
  virtual void load_state(const nlohmann::json& state) { static_cast<void>(state); }
};

/// The unit in which a scheduler counts.
enum class Interval { kStep, kEpoch };
template <>
struct Words<Interval> {
  static constexpr std::array kWords = {"step", "epoch"};
};

struct SchedulerCommon {
  Interval interval = Interval::kStep;
  static void describe(Fields<SchedulerCommon>& f);
};

struct SchedulerKind {
  static constexpr const char* kName = "scheduler";
  using Inputs = SchedulerInputs;
  using Product = std::unique_ptr<Scheduler>;
  using Common = SchedulerCommon;
};
using SchedulerRegistry = Registry<SchedulerKind>;
const SchedulerRegistry& registry_of(const Catalog& catalog, SchedulerKind);

}  // namespace trainrun
