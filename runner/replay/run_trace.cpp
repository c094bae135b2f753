#include "runner/replay/run_trace.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "runner/train/training_error.h"

namespace trainrun {
namespace {

constexpr uint64_t kSeed = 0x7472616365ULL;

uint64_t hash_of(const NamedTensors& tensors) {
  uint64_t hash = kSeed;
  for (const auto& [name, tensor] : tensors) hash = hashed(hash, tensor);
  return hash;
}

/// Hashes the batches that a step is made of.
class BatchHash : public Callback {
 public:
  explicit BatchHash(std::shared_ptr<uint64_t> hash) : hash_(std::move(hash)) {}
  void before_forward(Run&, Batch& batch) override {
    for (const Batch::Field& field : batch.fields()) *hash_ = hashed(*hash_, field.tensor);
  }

 private:
  std::shared_ptr<uint64_t> hash_;
};

/// Follows one run while its steps are made again.
class Tracer {
 public:
  Tracer(ReplayedRun& run, const StoredState& from, int64_t last, const StoredState* other)
      : run_(run), last_(last), other_(other), job_(run.stand_at(from)) {
    for (const StoredState& state : run.states()) {
      if (state.step > from.step && !state.path.empty()) stored_.emplace(state.step, &state);
    }
    trace_.from = confirmed_ = from.step;
    trace_.beginning = hash_of(job_->model->state_dict());
    job_->callbacks->add_own({{}, "replay", "replay"}, std::make_unique<BatchHash>(batch_));
  }

  RunTrace run() {
    compare_with_other();
    if (job_->progress.step >= last_ || trace_.foreign) return std::move(trace_);
    try {
      make_steps(*job_, [this](const StepOutcome& outcome) { return add(outcome); });
    } catch (const NonFiniteNumbers&) {
      trace_.is_short = true;  // the other run tells whether it should have been
    }
    return std::move(trace_);
  }

 private:
  /// Whether this was the last step.
  bool add(const StepOutcome& outcome) {
    RunTrace::Step step;
    step.step = job_->progress.step;
    step.batch = std::exchange(*batch_, kSeed);
    step.state = hash_of(job_->model->state_dict());
    step.optimizer = hash_of(job_->optimizer->state());
    step.random = kSeed;
    for (const at::Tensor& state : job_->random_states()) step.random = hashed(step.random, state);
    step.loss = outcome.figures.loss.item<double>();
    for (const GroupRates& group : job_->rates) step.rates.push_back(group.lr);
    trace_.steps.push_back(std::move(step));
    compare_with_own();
    compare_with_other();
    return trace_.foreign || job_->progress.step >= last_;
  }

  void compare_with_own() {
    if (trace_.fault) return;  // the first one is told
    const RunTrace::Step& step = trace_.steps.back();
    RunTrace::Fault fault;
    fault.from = trace_.from;
    fault.confirmed = confirmed_;
    fault.step = step.step;
    if (const auto logged = run_.logged_loss(step.step)) {
      if (*logged != step.loss && (!std::isnan(*logged) || std::isfinite(step.loss))) {
        fault.logged = *logged;
        fault.replayed = step.loss;
        trace_.fault = std::move(fault);
        return;
      }
      confirmed_ = fault.confirmed = step.step;
    }
    const auto stored = stored_.find(step.step);
    if (stored == stored_.end() || !is_comparable()) return;
    fault.state =
        compare_states(content_of(job_->capture(Job::Copies::kShared)), CheckpointStore::load(stored->second->path));
    fault.checkpoint = stored->second->path;
    if (fault.state) {
      trace_.fault = std::move(fault);
    } else {
      confirmed_ = step.step;
    }
  }

  void compare_with_other() {
    if (!other_ || other_->path.empty() || other_->step != job_->progress.step || !is_comparable()) return;
    if (other_->step == trace_.from) return;  // common states were compared
    trace_.foreign =
        compare_states(content_of(job_->capture(Job::Copies::kShared)), CheckpointStore::load(other_->path));
  }

  /// What callbacks do once training is over is in the last checkpoint, and not in what is compared with it.
  bool is_comparable() const { return job_->recipe.callbacks.empty() || job_->progress.step < job_->total_steps(); }

  ReplayedRun& run_;
  int64_t last_;
  const StoredState* other_;
  std::shared_ptr<uint64_t> batch_ = std::make_shared<uint64_t>(kSeed);
  std::unique_ptr<Job> job_;
  std::map<int64_t, const StoredState*> stored_;
  int64_t confirmed_ = 0;
  RunTrace trace_;
};

bool is_same(const RunTrace::Step& a, const RunTrace::Step& b) {
  const bool is_same_loss = a.loss == b.loss || (std::isnan(a.loss) && std::isnan(b.loss));
  return a.batch == b.batch && a.state == b.state && a.optimizer == b.optimizer && a.random == b.random &&
         is_same_loss && a.rates == b.rates;
}

}  // namespace

RunTrace trace_run(ReplayedRun& run, const StoredState& from, int64_t last, const StoredState* other) {
  return Tracer(run, from, last, other).run();
}

std::optional<int64_t> first_difference(const RunTrace& a, const RunTrace& b) {
  if (a.from == b.from && a.beginning != b.beginning) return a.from + 1;
  const int64_t begin = std::max(a.from, b.from) + 1;
  for (const RunTrace::Step& step : a.steps) {
    if (step.step < begin) continue;
    const auto other = std::ranges::find(b.steps, step.step, &RunTrace::Step::step);
    if (other == b.steps.end()) return b.is_short ? std::optional(step.step) : std::nullopt;
    if (!is_same(step, *other)) return step.step;
  }
  if (!a.is_short) return std::nullopt;
  const int64_t last = a.steps.empty() ? a.from : a.steps.back().step;
  return b.is_short && (b.steps.empty() ? b.from : b.steps.back().step) == last ? std::nullopt
                                                                                : std::optional(last + 1);
}

}  // namespace trainrun
