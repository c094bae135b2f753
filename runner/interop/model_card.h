#pragma once

#include <optional>
#include <string>
#include <vector>

#include "registry/formats/web/hub_name.h"
#include "runner/train/evaluation.h"

namespace trainrun {

/// What a folder for Hugging Face's hub holds, for its README.md.
struct CardSubject {
  std::string library;                    // transformers, peft or sentence-transformers
  std::string architecture;               // "BertForSequenceClassification"
  std::string task;                       // the hub's pipeline_tag; "": none fits
  std::string base;                       // the folder of the model that this one began from; "": from scratch
  bool is_adapter = false;                // of `base`, which is not in the folder
  std::string usage = {};                 // Python that opens the folder
  std::vector<std::string> labels = {};   // names of the outputs
  std::vector<std::string> remarks = {};  // what a user must know, a sentence each
};

/// The model card: YAML that the hub reads (tags, pipeline_tag, base_model, the run's figures as model-index), then data,
/// figures, versions, and the recipe with the command that repeats the run.
std::string model_card(TrainedRun& run, const CardSubject& subject);

/// The model on the hub in whose cache the folder lies; nothing: it lies elsewhere.
std::optional<HubName> published_model(const std::string& folder);

/// The folder's own name, without those above it.
std::string name_of_folder(const std::string& folder);

/// "AutoModelForSequenceClassification" for "BertForSequenceClassification".
std::string auto_class_of(const std::string& architecture);
/// "text-classification" for "BertForSequenceClassification"; "" for a model without a task.
std::string pipeline_tag_of(const std::string& architecture);

}  // namespace trainrun
