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

}  // namespace trainrun
