#include "runner/train/resources.h"

#include <algorithm>
#include <set>

#include "runner/model/gradients.h"

namespace trainrun {
namespace {

using nlohmann::ordered_json;

/// Of the memory that tensors lie in, each counted once: pieces and views come with what they are cut from.
int64_t memory_of(const Tensors& tensors) {
  std::set<const c10::StorageImpl*> seen;
  int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) {
    const c10::Storage& storage = tensor.storage();
    if (seen.insert(storage.unsafeGetStorageImpl()).second) bytes += static_cast<int64_t>(storage.nbytes());
  }
  return bytes;
}

}  // namespace

HeldBytes held_bytes(Job& job) {
  Tensors parameters;
  for (const auto& [name, tensor] : job.shards() ? job.parallel->parameters() : job.model->parameters()) {
    parameters.push_back(tensor);
  }
  HeldBytes held;
  held.parameters = memory_of(parameters);
  held.gradients = memory_of(gradients_of(parameters));
  for (const auto& [name, tensor] : job.optimizer->state()) {
    held.optimizer_state += static_cast<int64_t>(tensor.nbytes());
  }
  return held;
}

std::vector<TrafficLine> traffic_of(const Job& job) {
  std::vector<TrafficLine> lines;
  for (const auto& [key, traffic] : job.group->traffic()) {
    lines.push_back({key.second, key.first, traffic.calls, traffic.bytes});
  }
  std::stable_sort(lines.begin(), lines.end(), [](const auto& a, const auto& b) { return a.purpose < b.purpose; });
  return lines;
}

RankResources resources_of(Job& job, int64_t steps) {
  return {job.group->rank(), steps, held_bytes(job), traffic_of(job)};
}

ordered_json to_json(const HeldBytes& held) {
  return {{"parameters_bytes", held.parameters},
          {"gradients_bytes", held.gradients},
          {"optimizer_state_bytes", held.optimizer_state}};
}

ordered_json to_json(const std::vector<TrafficLine>& traffic) {
  ordered_json lines = ordered_json::array();
  for (const TrafficLine& line : traffic) {
    lines.push_back(
        {{"purpose", line.purpose}, {"operation", line.operation}, {"calls", line.calls}, {"bytes", line.bytes}});
  }
  return lines;
}

ordered_json to_json(const RankResources& resources) {
  ordered_json result = {{"rank", resources.rank}, {"steps", resources.steps}};
  result.update(to_json(resources.held));
  result["traffic"] = to_json(resources.traffic);
  return result;
}

nlohmann::json resources_of_ranks(Job& job, int64_t steps) {
  const std::string own = to_json(resources_of(job, steps)).dump();
  nlohmann::json all = nlohmann::json::array();
  for (const std::string& text : job.group->gather_texts(own, "the summary")) {
    all.push_back(nlohmann::json::parse(text));
  }
  return all;
}

}  // namespace trainrun
