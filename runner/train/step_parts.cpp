// What a checkpoint keeps of what makes the steps: rates, the scale of the loss, random numbers.
#include <ATen/Context.h>

#include <algorithm>

#include "registry/language/hex.h"
#include "runner/train/job.h"
#include "runner/train/job_parts.h"
#include "runner/train/random_states.h"
#include "runner/train/rank_seed.h"

namespace trainrun {
namespace {

using nlohmann::json;

std::string to_hex(const at::Tensor& bytes) {
  return hex_of({reinterpret_cast<const char*>(bytes.const_data_ptr<uint8_t>()), static_cast<size_t>(bytes.numel())});
}

/// Throws CheckpointError for what `to_hex` does not write.
at::Tensor from_hex(const std::string& text) {
  const auto content = bytes_of_hex(text);
  if (!content) throw CheckpointError("state.json: the state of the random numbers is not in hexadecimal digits");
  at::Tensor bytes = at::empty({static_cast<int64_t>(content->size())}, at::kByte);
  std::copy(content->begin(), content->end(), bytes.mutable_data_ptr<uint8_t>());
  return bytes;
}

/// A device's name in checkpoints, which may be resumed on another of its kind.
std::string kind_of(at::Device device) { return device.is_cpu() ? "cpu" : "cuda"; }

class SchedulerPart : public Stateful {
 public:
  explicit SchedulerPart(Job& job) : Stateful("scheduler"), job_(job) {}

  json values() override { return job_.scheduler ? job_.scheduler->state() : json(); }

  void load(const Snapshot& saved) override {
    job_.scheduler = build_scheduler(job_);
    if (job_.scheduler && !saved.values.is_null()) job_.scheduler->load_state(saved.values);
  }

 private:
  Job& job_;
};

class ScalerPart : public Stateful {
 public:
  explicit ScalerPart(Job& job) : Stateful("grad_scaler"), job_(job) {}

  json values() override { return job_.grad_scaler ? job_.grad_scaler->state() : json(); }

  void load(const Snapshot& saved) override {
    if (job_.grad_scaler && !saved.values.is_null()) job_.grad_scaler->load_state(saved.values);
  }

 private:
  Job& job_;
};

/// By rank and kind of device.
class RandomPart : public Stateful {
 public:
  explicit RandomPart(Job& job) : Stateful("random"), job_(job) {}

  json values() override {
    json values = json::array();
    for (const at::Device& source : random_sources(job_.device)) {
      const at::Tensor own = random_state(source).unsqueeze(0);
      const at::Tensor states = job_.group->gather_rows(own, "a checkpoint");
      for (int64_t rank = 0; rank < states.size(0); ++rank) {
        values[static_cast<size_t>(rank)][kind_of(source)] = to_hex(states[rank].contiguous());
      }
    }
    return values;
  }

  void load(const Snapshot& saved) override {
    const auto rank = static_cast<size_t>(job_.group->rank());
    if (!job_.is_main() && rank >= saved.values.size()) {  // a rank that the checkpoint did not have
      at::manual_seed(rank_seed(static_cast<uint64_t>(job_.recipe.seed), job_.group->rank(), job_.progress.step));
      return;
    }
    const json& own = saved.values.at(rank);
    for (const at::Device& source : random_sources(job_.device)) {  // a run that began on the CPU has none of a GPU
      const std::string kind = kind_of(source);
      if (own.contains(kind)) set_random_state(source, from_hex(own.at(kind).get<std::string>()));
    }
  }

 private:
  Job& job_;
};

}  // namespace

void add_step_parts(Job& job, Parts& parts) {
  parts.push_back(std::make_unique<SchedulerPart>(job));
  parts.push_back(std::make_unique<ScalerPart>(job));
  parts.push_back(std::make_unique<RandomPart>(job));
}

}  // namespace trainrun
