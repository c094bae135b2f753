#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/GradMode.h>

#include <map>
#include <utility>

#include "registry/callback.h"

namespace trainrun {
namespace {

constexpr const char* kSuffix = ".average";

struct EMA {
  double decay = 0.999;
  bool use_buffers = false;
  bool use_for_evaluation = true;
  static void describe(Fields<EMA>& f) {
    f.optional("decay", &EMA::decay)
        .at_least(0)
        .at_most(1)
        .doc("share of the average that is kept at each optimizer step; the rest comes from the new weights");
    f.optional("use_buffers", &EMA::use_buffers)
        .doc(
            "average the layers' buffers (such as BatchNorm's running means) as well; otherwise the model's own are "
            "used");
    f.optional("use_for_evaluation", &EMA::use_for_evaluation)
        .doc("evaluate with the averaged weights, while training and in `trainrun eval`; checkpoints have both");
  }
  std::unique_ptr<Callback> build(const CallbackInputs&) const;
};

/// Source: Polyak & Juditsky 1992, "Acceleration of stochastic approximation by averaging"; semantics of
/// torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn: the first step's weights begin the average.
class Average : public Callback {
 public:
  explicit Average(const EMA& options) : options_(options) {}

  void after_step(Run& run, const StepResult&) override {
    const c10::AutoGradMode no_gradients(false);
    const NamedTensors current = averaged_of(run);
    if (averages_.empty()) {
      for (const auto& [name, tensor] : current) averages_.push_back(tensor.detach().clone());
      return;
    }
    Tensors averages, tensors;
    for (size_t i = 0; i < current.size(); ++i) {
      const at::Tensor tensor = current[i].second.detach();
      if (tensor.is_floating_point() || tensor.is_complex()) {
        averages.push_back(averages_[i]);
        tensors.push_back(tensor);
      } else {
        averages_[i].copy_(averages_[i] * options_.decay + tensor * (1 - options_.decay));
      }
    }
    if (!averages.empty()) at::_foreach_lerp_(averages, tensors, 1 - options_.decay);
  }

  std::unique_ptr<Scope> around_evaluation(Run& run) override;

  void save(Run& run, Snapshot& snapshot) const override {
    if (averages_.empty()) return;  // no step was made yet
    const NamedTensors current = averaged_of(run);
    for (size_t i = 0; i < current.size(); ++i) snapshot.tensors.emplace_back(current[i].first + kSuffix, averages_[i]);
  }

  void load(Run& run, const Snapshot& snapshot) override {
    if (snapshot.tensors.empty() && run.step() == 0) return;
    const c10::AutoGradMode no_gradients(false);
    const std::map<std::string, at::Tensor> saved(snapshot.tensors.begin(), snapshot.tensors.end());
    averages_.clear();
    for (const auto& [name, tensor] : averaged_of(run)) {
      const auto found = saved.find(name + kSuffix);
      if (found == saved.end()) {
        throw Error("the checkpoint has no average of " + name + "; leave EMA out, or begin with checkpoint.resume=no");
      }
      if (found->second.sizes() != tensor.sizes()) {
        throw Error("the checkpoint's average of " + name + " has another shape");
      }
      averages_.push_back(at::empty_like(tensor.detach()).copy_(found->second));
    }
  }

  /// The averages become the model's tensors, and the model's the averages.
  void exchange(Run& run) {
    const c10::AutoGradMode no_gradients(false);
    const NamedTensors current = averaged_of(run);
    for (size_t i = 0; i < current.size(); ++i) {
      const at::Tensor tensor = current[i].second.detach();
      const at::Tensor held = tensor.clone();
      tensor.copy_(averages_[i]);
      averages_[i].copy_(held);
    }
  }

 private:
  NamedTensors averaged_of(const Run& run) const {
    NamedTensors tensors = run.parameters();
    if (!options_.use_buffers) return tensors;
    const NamedTensors buffers = run.buffers();
    tensors.insert(tensors.end(), buffers.begin(), buffers.end());
    return tensors;
  }

  EMA options_;
  Tensors averages_;  // as averaged_of has them; empty before the first step
};

class Exchanged : public Scope {
 public:
  Exchanged(Average& average, Run& run) : average_(average), run_(run) { average_.exchange(run_); }
  ~Exchanged() override { average_.exchange(run_); }
  Exchanged(const Exchanged&) = delete;
  Exchanged& operator=(const Exchanged&) = delete;

 private:
  Average& average_;
  Run& run_;
};

std::unique_ptr<Scope> Average::around_evaluation(Run& run) {
  if (!options_.use_for_evaluation || averages_.empty()) return nullptr;
  return std::make_unique<Exchanged>(*this, run);
}

std::unique_ptr<Callback> EMA::build(const CallbackInputs&) const { return std::make_unique<Average>(*this); }

}  // namespace

void add_ema(CallbackRegistry& callbacks) {
  callbacks.add<EMA>("EMA", "an exponential moving average of the weights, which evaluations use");
}

}  // namespace trainrun
