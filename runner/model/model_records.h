#pragma once

#include <memory>
#include <string>
#include <vector>

#include "registry/graph/graph.h"
#include "registry/models/model_config.h"

namespace trainrun {

/// A registered language model within a recipe's model.
struct FoundRecord {
  std::shared_ptr<const ModelRecord> record;
  std::string prefix;  // of its tensors' names: "" or "encoder."
};

std::vector<FoundRecord> find_records(const Graph& graph);
/// The folder whose weights the model began with; "" if it names none.
std::string pretrained_folder(const Graph& graph);

}  // namespace trainrun
