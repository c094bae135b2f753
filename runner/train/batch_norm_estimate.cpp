#include "runner/train/batch_norm_estimate.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include <utility>

#include "registry/kinds/running_statistics.h"

namespace trainrun {
namespace {

/// The batch normalizations of a model that keep statistics; while one lives, each batch has the same share in them.
class Anew {
 public:
  explicit Anew(const Graph& graph) {
    for (const auto& module : graph.modules()) {
      auto* norm = dynamic_cast<RunningStatistics*>(module.get());
      if (norm && !norm->statistics().empty()) norms_.emplace_back(module, norm);
    }
    for (const auto& [module, norm] : norms_) norm->begin_anew();
  }
  ~Anew() {
    for (const auto& [module, norm] : norms_) norm->end_anew();
  }
  Anew(const Anew&) = delete;
  Anew& operator=(const Anew&) = delete;

  bool empty() const { return norms_.empty(); }

  /// Has every rank take the mean over all ranks' batches, of which this one had `num_batches`.
  void merge(ProcessGroup& group, int64_t num_batches) {
    Tensors sums;  // in float64, of the mean and the variance times the batches, and of the batches
    for (const auto& [module, norm] : norms_) {
      if (norm->spans_all_ranks()) continue;
      const Tensors own = norm->statistics();
      for (size_t i = 0; i < 2; ++i) sums.push_back(own[i].to(at::kDouble) * static_cast<double>(num_batches));
      sums.push_back(own[2].to(at::kDouble));
    }
    if (sums.empty()) return;
    group.sum(sums, "batch normalizations");
    size_t next = 0;
    for (const auto& [module, norm] : norms_) {
      if (norm->spans_all_ranks()) continue;
      const Tensors own = norm->statistics();
      const at::Tensor& total = sums[next + 2];
      own[0].copy_(sums[next] / total);
      own[1].copy_(sums[next + 1] / total);
      own[2].copy_(total);
      next += 3;
    }
  }

 private:
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, RunningStatistics*>> norms_;
};

}  // namespace

void estimate_batch_norms(Model& model, BatchStream& batches, const std::function<void(Batch&)>& prepare,
                          ProcessGroup& group) {
  const at::NoGradGuard no_gradients;
  Anew norms(model.graph());
  if (norms.empty()) return;
  const PhaseScope phase(group, Phase::kEvaluation);
  model.train();
  int64_t num_batches = 0;
  for (; std::optional<Batch> batch = batches.next(); ++num_batches) {
    prepare(*batch);
    model.forward(*batch);
  }
  if (!group.is_alone()) norms.merge(group, num_batches);  // one process has its means already, to the last bit
}

}  // namespace trainrun
