// What a checkpoint keeps of callbacks.
#include <functional>
#include <set>

#include "runner/train/job.h"
#include "runner/train/job_parts.h"

namespace trainrun {
namespace {

/// `own`, of this rank, as one process would have it: those named after a parameter, "NAME.average", are in its shape.
NamedTensors whole_of(Job& job, const NamedTensors& own) {
  if (!job.shards()) return own;
  std::set<std::string> parameters;
  for (const auto& [name, tensor] : job.parallel->parameters()) parameters.insert(name);
  NamedTensors pieces, others;
  for (const auto& [name, tensor] : own) {
    const bool is_piece = parameters.contains(name.substr(0, name.rfind('.')));
    (is_piece ? pieces : others).emplace_back(name, tensor);
  }
  NamedTensors whole = job.parallel->gather_state(pieces);
  whole.insert(whole.end(), others.begin(), others.end());
  return whole;
}

NamedTensors own_of(Job& job, const NamedTensors& whole) {
  return job.shards() ? job.parallel->own_state(whole) : whole;
}

/// What callbacks keep: of one of them, or of all.
class CallbackPart : public Stateful {
 public:
  CallbackPart(std::string name, Job& job, std::function<Snapshot()> save, std::function<void(const Snapshot&)> load)
      : Stateful(std::move(name)), job_(job), save_(std::move(save)), load_(std::move(load)) {}

  NamedTensors tensors() override { return whole_of(job_, save_().tensors); }
  nlohmann::json values() override {
    const nlohmann::json values = save_().values;
    return values.is_null() ? Stateful::values() : values;
  }
  void load(const Snapshot& saved) override { load_({own_of(job_, saved.tensors), saved.values}); }

 private:
  Job& job_;
  std::function<Snapshot()> save_;
  std::function<void(const Snapshot&)> load_;
};

}  // namespace

void add_callback_parts(Job& job, Parts& parts) {
  for (size_t i = 0; i < job.recipe.callbacks.size(); ++i) {
    parts.push_back(std::make_unique<CallbackPart>(
        callback_part(i), job, [&job, i] { return job.callbacks->save(i); },
        [&job, i](const Snapshot& saved) { job.callbacks->load(i, saved); }));
  }
  parts.push_back(std::make_unique<CallbackPart>(
      "kept", job, [&job] { return job.callbacks->save_kept(); },
      [&job](const Snapshot& saved) { job.callbacks->load_kept(saved); }));
}

}  // namespace trainrun
