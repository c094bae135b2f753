#include "runner/run/snapshots.h"

#include <ATen/ops/empty.h>

#include <algorithm>

namespace trainrun {
namespace {

constexpr const char* kModelPart = "model";
constexpr const char* kOptimizerPart = "optimizer";

/// What goes before the names of a part's tensors in the optimizer's file.
std::string prefix_of(const std::string& part) { return part + "."; }

/// Whether nothing but the `names` of a snapshot can reach the tensor's memory. (Memory that LibTorch did not allocate
/// cannot be resized; whoever lent it may still write to it.)
bool is_held_by_nobody_else(const at::Tensor& tensor, size_t names) {
  return tensor.is_cpu() && tensor.use_count() == names && tensor.storage().use_count() == 1 &&
         tensor.storage().resizable();
}

at::Tensor copy_on_host(const at::Tensor& tensor) {
  return at::empty(tensor.sizes(), tensor.options().device(at::kCPU)).copy_(tensor.detach());
}

}  // namespace

CheckpointContent content_of(const Snapshots& parts) {
  CheckpointContent content;
  content.state = nlohmann::json::object();
  for (const auto& [part, snapshot] : parts) {
    const bool is_progress = part == kProgressPart;
    if (is_progress) content.state.update(snapshot.values);
    if (!is_progress && !snapshot.values.is_discarded()) content.state[part] = snapshot.values;
    NamedTensors& file = part == kModelPart ? content.model : content.optimizer;
    const std::string prefix = part == kModelPart || part == kOptimizerPart ? "" : prefix_of(part);
    for (const auto& [name, tensor] : snapshot.tensors) file.emplace_back(prefix + name, tensor);
  }
  return content;
}

Snapshots parts_of(const CheckpointContent& content, const std::vector<std::string>& names) {
  Snapshots parts;
  for (const std::string& part : names) {
    const auto values = content.state.find(part);
    if (values != content.state.end()) parts[part].values = *values;
  }
  for (const auto& [name, tensor] : content.optimizer) {
    const auto owner = std::find_if(names.begin(), names.end(), [&, &full = name](const std::string& part) {
      return part != kModelPart && part != kOptimizerPart && full.starts_with(prefix_of(part));
    });
    if (owner == names.end()) {
      parts[kOptimizerPart].tensors.emplace_back(name, tensor);
    } else {
      parts[*owner].tensors.emplace_back(name.substr(prefix_of(*owner).size()), tensor);
    }
  }
  parts[kModelPart].tensors = content.model;
  parts[kProgressPart].values = content.state;
  return parts;
}

void make_own(Snapshots& parts) {
  std::map<const at::TensorImpl*, std::vector<at::Tensor*>> named;  // a tensor may have several names
  for (auto& [part, snapshot] : parts) {
    for (auto& [name, tensor] : snapshot.tensors) named[tensor.unsafeGetTensorImpl()].push_back(&tensor);
  }
  for (const auto& [shared, tensors] : named) {
    if (is_held_by_nobody_else(*tensors[0], tensors.size())) continue;
    const at::Tensor copy = copy_on_host(*tensors[0]);
    for (at::Tensor* tensor : tensors) *tensor = copy;
  }
}

bool is_worth_own(const Snapshots& parts, double seconds_between) {
  constexpr double kBytesOfSecond = 2e9;  // copied into memory that the system has to fetch first
  size_t bytes = 0;
  for (const auto& [part, snapshot] : parts) {
    for (const auto& [name, tensor] : snapshot.tensors) bytes += tensor.nbytes();
  }
  return seconds_between >= static_cast<double>(bytes) / kBytesOfSecond;
}

}  // namespace trainrun
