#pragma once

#include <map>
#include <string>
#include <vector>

#include "registry/components/adapters/peft_folder.h"
#include "registry/tensors/named_tensors.h"

namespace trainrun {

/// The tensors of an adapter that peft has saved, by the layers of a model that they belong to.
struct SavedAdapter {
  std::map<std::string, NamedTensors> of_layers;  // by layer: what is the adapter's, "lora_A.weight"
  NamedTensors whole;                             // by state name: weights of the model itself
};

/// `layers`: the names of the model's layers with weights; `parameters`: its state names. A prefix that all of the
/// folder's names lack, or have besides, is made up for. Throws DataError where a tensor belongs to no layer.
SavedAdapter assign_to_layers(const PeftFolder& folder, const std::vector<std::string>& layers,
                              const std::vector<std::string>& parameters);

}  // namespace trainrun
