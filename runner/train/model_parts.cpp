// What a checkpoint keeps of the weights, of the optimizer and of the communication hook.
#include <spdlog/spdlog.h>

#include "runner/train/job.h"
#include "runner/train/job_parts.h"

namespace trainrun {
namespace {

class ModelPart : public Stateful {
 public:
  explicit ModelPart(Job& job) : Stateful("model"), job_(job) {}

  NamedTensors tensors() override { return job_.parallel->gather_model(job_.model->state_dict()); }

  void load(const Snapshot& saved) override {
    const auto whole = job_.parallel->make_whole();
    job_.model->load_state_dict(saved.tensors, "the checkpoint");
  }

 private:
  Job& job_;
};

class OptimizerPart : public Stateful {
 public:
  explicit OptimizerPart(Job& job) : Stateful("optimizer"), job_(job) {}

  NamedTensors tensors() override { return job_.parallel->gather_state(job_.optimizer->state()); }

  void load(const Snapshot& saved) override {
    const NamedTensors own = job_.parallel->own_state(saved.tensors);
    job_.optimizer->load_state({own.begin(), own.end()});
  }

 private:
  Job& job_;
};

class HookPart : public Stateful {
 public:
  explicit HookPart(Job& job) : Stateful("comm_hook"), job_(job) {}

  NamedTensors tensors() override { return job_.parallel->hook_state(); }

  void load(const Snapshot& saved) override {
    if (saved.tensors.empty()) return;
    const int64_t saved_ranks = saved.tensors[0].second.size(0);
    if (saved_ranks == job_.world_size()) return job_.parallel->load_hook_state(saved.tensors);
    spdlog::warn("the checkpoint is of {} ranks: the state of its communication hook is discarded", saved_ranks);
  }

 private:
  Job& job_;
};

}  // namespace

void add_model_parts(Job& job, Parts& parts) {
  parts.push_back(std::make_unique<ModelPart>(job));
  parts.push_back(std::make_unique<OptimizerPart>(job));
  parts.push_back(std::make_unique<HookPart>(job));
}

}  // namespace trainrun
