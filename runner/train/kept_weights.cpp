#include "runner/train/kept_weights.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>

#include "registry/language/value.h"

namespace trainrun {
namespace {

constexpr const char* kParameter = "kept";
constexpr const char* kBuffer = "kept_buffer";
constexpr const char* kAverage = "kept_";  // then the callback's number, "_", and what it calls it

NamedTensors copies_of(const NamedTensors& tensors) {
  NamedTensors copies;
  for (const auto& [name, tensor] : tensors) copies.emplace_back(name, tensor.detach().clone());
  return copies;
}

NamedTensors trained(const Run& run) {
  NamedTensors parameters = run.parameters();
  std::erase_if(parameters, [](const auto& parameter) { return !parameter.second.requires_grad(); });
  return parameters;
}

void put_back(const NamedTensors& into, const NamedTensors& kept, const char* what) {
  const std::map<std::string, at::Tensor> saved(kept.begin(), kept.end());
  for (const auto& [name, tensor] : into) {
    const auto found = saved.find(name);
    if (found == saved.end() || found->second.sizes() != tensor.sizes()) {
      throw Error("the " + std::string(what) + " " + name +
                  " that was kept as the best is not there, or of another shape");
    }
    tensor.detach().copy_(found->second);
  }
}

}  // namespace

void KeptWeights::keep(Run& run, const Callbacks& callbacks) {
  const c10::AutoGradMode no_gradients(false);
  step_ = run.step();
  parameters_ = copies_of(trained(run));
  buffers_ = copies_of(run.buffers());
  averages_.assign(callbacks.size(), {});
  for (size_t i = 0; i < callbacks.size(); ++i) {
    if (!callbacks[i].get().has_weights()) continue;
    callbacks[i].get().save(run, averages_[i]);
    averages_[i].tensors = copies_of(averages_[i].tensors);
  }
}

bool KeptWeights::restore(Run& run, const Callbacks& callbacks) const {
  if (!is_of_another(run.step())) return false;
  const c10::AutoGradMode no_gradients(false);
  put_back(trained(run), parameters_, "parameter");
  put_back(run.buffers(), buffers_, "buffer");
  for (size_t i = 0; i < callbacks.size(); ++i) {
    if (callbacks[i].get().has_weights()) callbacks[i].get().load(run, averages_[i]);
  }
  return true;
}

Snapshot KeptWeights::save() const {
  Snapshot saved;
  if (step_ < 0) return saved;
  saved.values = {{"step", step_}, {"averages", nlohmann::json::array()}};
  for (const auto& [name, tensor] : parameters_) saved.tensors.emplace_back(name + "." + kParameter, tensor);
  for (const auto& [name, tensor] : buffers_) saved.tensors.emplace_back(name + "." + kBuffer, tensor);
  for (size_t i = 0; i < averages_.size(); ++i) {
    saved.values["averages"].push_back(averages_[i].values);
    for (const auto& [name, tensor] : averages_[i].tensors) {
      const size_t dot = name.rfind('.');
      saved.tensors.emplace_back(name.substr(0, dot + 1) + kAverage + std::to_string(i) + "_" + name.substr(dot + 1),
                                 tensor);
    }
  }
  return saved;
}

void KeptWeights::load(Run& run, const Callbacks& callbacks, const Snapshot& saved) {
  if (!saved.values.is_object()) return;
  const auto step = saved.values.at("step").get<int64_t>();
  if (step == run.step()) return keep(run, callbacks);
  step_ = step;
  parameters_.clear();
  buffers_.clear();
  averages_.assign(callbacks.size(), {});
  const nlohmann::json& values = saved.values.at("averages");
  for (size_t i = 0; i < std::min(values.size(), averages_.size()); ++i) averages_[i].values = values[i];
  for (const auto& [name, tensor] : saved.tensors) {
    const size_t dot = name.rfind('.');
    const std::string base = name.substr(0, dot);
    const std::string kind = name.substr(dot + 1);
    if (kind == kParameter) {
      parameters_.emplace_back(base, tensor);
    } else if (kind == kBuffer) {
      buffers_.emplace_back(base, tensor);
    } else {
      const size_t begin = std::string_view(kAverage).size();
      const size_t end = kind.find('_', begin);
      const auto number = parse_integer(kind.substr(begin, end - begin));
      if (!number || *number < 0 || *number >= static_cast<int64_t>(averages_.size())) continue;
      averages_[static_cast<size_t>(*number)].tensors.emplace_back(base + "." + kind.substr(end + 1), tensor);
    }
  }
}

}  // namespace trainrun
