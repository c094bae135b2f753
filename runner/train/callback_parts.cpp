// What a checkpoint keeps of callbacks.
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

class CallbackPart : public Stateful {
 public:
  CallbackPart(Job& job, size_t i) : Stateful(callback_part(i)), job_(job), i_(i) {}

  NamedTensors tensors() override { return whole_of(job_, job_.callbacks->save(i_).tensors); }

  nlohmann::json values() override {
    const nlohmann::json values = job_.callbacks->save(i_).values;
    return values.is_null() ? Stateful::values() : values;
  }

  void load(const Snapshot& saved) override { job_.callbacks->load(i_, {own_of(job_, saved.tensors), saved.values}); }

 private:
  Job& job_;
  size_t i_;
};

class KeptPart : public Stateful {
 public:
  explicit KeptPart(Job& job) : Stateful("kept"), job_(job) {}

  NamedTensors tensors() override { return whole_of(job_, job_.callbacks->save_kept().tensors); }
  nlohmann::json values() override {
    const nlohmann::json values = job_.callbacks->save_kept().values;
    return values.is_null() ? Stateful::values() : values;
  }
  void load(const Snapshot& saved) override { job_.callbacks->load_kept({own_of(job_, saved.tensors), saved.values}); }

 private:
  Job& job_;
};

}  // namespace

void add_callback_parts(Job& job, Parts& parts) {
  for (size_t i = 0; i < job.recipe.callbacks.size(); ++i) parts.push_back(std::make_unique<CallbackPart>(job, i));
  parts.push_back(std::make_unique<KeptPart>(job));
}

}  // namespace trainrun
