#include "registry/components/callbacks/averaged_weights.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/GradMode.h>

#include <map>
#include <utility>

namespace trainrun {
namespace {

constexpr const char* kSuffix = ".average";

}  // namespace

class AveragedWeights::Exchanged : public Scope {
 public:
  Exchanged(AveragedWeights& average, Run& run) : average_(average), run_(run) { average_.exchange(run_); }
  ~Exchanged() override { average_.exchange(run_); }
  Exchanged(const Exchanged&) = delete;
  Exchanged& operator=(const Exchanged&) = delete;

 private:
  AveragedWeights& average_;
  Run& run_;
};

void AveragedWeights::after_step(Run& run, const StepResult&) {
  if (!counts(run.step())) return;
  const c10::AutoGradMode no_gradients(false);
  const NamedTensors& current = averaged_of(run);
  if (averages_.empty()) {
    for (const auto& [name, tensor] : current) averages_.push_back(tensor.detach().clone());
    return;
  }
  const double share = share_of_new(num_counted(run.step()) - 1);
  Tensors averages, tensors;
  for (size_t i = 0; i < current.size(); ++i) {
    const at::Tensor tensor = current[i].second.detach();
    if (tensor.is_floating_point() || tensor.is_complex()) {
      averages.push_back(averages_[i]);
      tensors.push_back(tensor);
    } else {
      averages_[i].copy_(averages_[i] * (1 - share) + tensor * share);
    }
  }
  if (!averages.empty()) at::_foreach_lerp_(averages, tensors, share);
}

std::unique_ptr<Scope> AveragedWeights::around_evaluation(Run& run) {
  if (!use_for_evaluation_ || averages_.empty()) return nullptr;
  return std::make_unique<Exchanged>(*this, run);
}

void AveragedWeights::save(Run&, Snapshot& snapshot) const {
  for (size_t i = 0; i < averages_.size(); ++i) {  // none before the first step that counts
    snapshot.tensors.emplace_back(averaged_[i].first + kSuffix, averages_[i]);
  }
}

void AveragedWeights::load(Run& run, const Snapshot& snapshot) {
  averages_.clear();
  if (snapshot.tensors.empty() && num_counted(run.step()) == 0) return;
  const c10::AutoGradMode no_gradients(false);
  const std::map<std::string, at::Tensor> saved(snapshot.tensors.begin(), snapshot.tensors.end());
  for (const auto& [name, tensor] : averaged_of(run)) {
    const auto found = saved.find(name + kSuffix);
    if (found == saved.end()) {
      throw Error("the checkpoint has no average of " + name + "; leave " + name_ +
                  " out, or begin with checkpoint.resume=no");
    }
    if (found->second.sizes() != tensor.sizes()) {
      throw Error("the checkpoint's average of " + name + " has another shape");
    }
    averages_.push_back(at::empty_like(tensor.detach()).copy_(found->second));
  }
}

const NamedTensors& AveragedWeights::averaged_of(const Run& run) {
  if (!averaged_.empty()) return averaged_;
  averaged_ = run.parameters();
  if (!use_buffers_) return averaged_;
  const NamedTensors buffers = run.buffers();
  averaged_.insert(averaged_.end(), buffers.begin(), buffers.end());
  return averaged_;
}

bool AveragedWeights::estimate_batch_norms(Run& run) {
  if (averages_.empty()) return false;
  const Exchanged exchanged(*this, run);
  run.estimate_batch_norms();
  return true;
}

void AveragedWeights::exchange(Run& run) {
  const c10::AutoGradMode no_gradients(false);
  const NamedTensors& current = averaged_of(run);
  for (size_t i = 0; i < current.size(); ++i) {
    const at::Tensor tensor = current[i].second.detach();
    const at::Tensor held = tensor.clone();
    tensor.copy_(averages_[i]);
    averages_[i].copy_(held);
  }
}

}  // namespace trainrun
