#pragma once

#include <string>

#include "registry/tensors/named_tensors.h"
#include "runner/model/model_records.h"
#include "runner/train/evaluation.h"

namespace trainrun {

/// A recipe's model that is one registered language model, as other programs know it.
struct ExportedModel {
  FoundRecord found;
  NamedTensors tensors;  // under their names in transformers, each once, adapters merged
};
/// Throws Error where the model is none, or has other layers besides; `format`: what was asked for, for messages.
ExportedModel exported_language_model(TrainedRun& run, const std::string& format);

}  // namespace trainrun
