// What a checkpoint keeps of callbacks.
#include <set>

#include "runner/train/job.h"
#include "runner/train/job_parts.h"

namespace trainrun {
namespace {

class CallbackPart : public Stateful {
 public:
  CallbackPart(Job& job, size_t i) : Stateful(callback_part(i)), job_(job), i_(i) {}

  NamedTensors tensors() override {
    NamedTensors own = job_.callbacks->save(i_).tensors;
    if (!job_.shards()) return own;
    std::set<std::string> parameters;
    for (const auto& [name, tensor] : job_.parallel->parameters()) parameters.insert(name);
    NamedTensors pieces, others;
    for (const auto& [name, tensor] : own) {
      const bool is_piece = parameters.contains(name.substr(0, name.rfind('.')));
      (is_piece ? pieces : others).emplace_back(name, tensor);
    }
    NamedTensors whole = job_.parallel->gather_state(pieces);
    whole.insert(whole.end(), others.begin(), others.end());
    return whole;
  }

  nlohmann::json values() override {
    const nlohmann::json values = job_.callbacks->save(i_).values;
    return values.is_null() ? Stateful::values() : values;
  }

  void load(const Snapshot& saved) override {
    job_.callbacks->load(i_, {job_.shards() ? job_.parallel->own_state(saved.tensors) : saved.tensors, saved.values});
  }

 private:
  Job& job_;
  size_t i_;
};

}  // namespace

void add_callback_parts(Job& job, Parts& parts) {
  for (size_t i = 0; i < job.recipe.callbacks.size(); ++i) parts.push_back(std::make_unique<CallbackPart>(job, i));
}

}  // namespace trainrun
