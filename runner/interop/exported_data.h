#pragma once

#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <vector>

#include "registry/tensors/files/safetensors.h"
#include "runner/train/evaluation.h"

namespace trainrun {

/// What transformers calls `problem_type`: single_label_classification, multi_label_classification or regression, as
/// the run's loss learnt `num_labels` outputs. Nothing: the loss does not say.
std::optional<std::string> problem_type_of(const TrainedRun& run, int64_t num_labels);

/// The names of so many outputs, by their numbers. Empty: nothing names them.
std::vector<std::string> output_names(const DataContract& contract, int64_t num_labels);

/// Names the outputs in config.json, which has an id2label of as many (`config` without it is left as it is), and says what
/// problem_type is. Their names; empty: nothing names them but their numbers.
std::vector<std::string> name_outputs(const TrainedRun& run, nlohmann::json& config);

/// How long the texts of the training data were at most, in tokens; nothing: they have none.
std::optional<int64_t> most_tokens(const DataContract& contract);

/// How to come from outputs back to the target's own units, for people: a sentence for each target that was scaled.
std::vector<std::string> ways_back(const DataContract& contract);

/// What exported files say beside the weights: `format` (pt), `trainrun.version`, `trainrun.contract` (DataContract as
/// JSON) and, where texts are read, `trainrun.tokenizer_sha256`. A tokenizer that has been removed is one of the run's
/// notes.
FileMetadata file_metadata(TrainedRun& run);

}  // namespace trainrun
