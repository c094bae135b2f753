#include "runner/model/model_records.h"

#include <string_view>

namespace trainrun {

std::vector<FoundRecord> find_records(const Graph& graph) {
  std::vector<FoundRecord> found;
  for (const auto& item : graph.named_modules()) {
    const auto record = std::dynamic_pointer_cast<const ModelRecord>(item.value());
    if (!record) continue;
    found.push_back({record, item.key().substr(0, item.key().size() - std::string_view(ModelRecord::kName).size())});
  }
  return found;
}

std::string pretrained_folder(const Graph& graph) {
  for (const FoundRecord& found : find_records(graph)) {
    if (!found.record->pretrained.empty()) return found.record->pretrained;
  }
  return "";
}

}  // namespace trainrun
