#include "runner/interop/exported_data.h"

#include <cmath>

#include "registry/language/error.h"
#include "registry/language/text_forms.h"
#include "registry/models/language_model.h"
#include "runner/interop/tokenizer_export.h"
#include "runner/model/model_records.h"

namespace trainrun {
namespace {

/// Whether the loss compares with class numbers: they are in the data, and no transform makes vectors of them.
bool compares_with_classes(const Recipe& recipe, const DataContract& contract) {
  DatasetInfo info = contract.info();
  for (const auto* transforms : {&recipe.dataset.train_transforms, &recipe.dataset.transforms}) {
    for (const Component<TransformKind>& transform : *transforms) transform.build({info})->describe(info);
  }
  const FieldInfo* target = info.find(info.target);
  return target && !at::isFloatingType(target->dtype);
}

}  // namespace

std::optional<std::string> problem_type_of(const TrainedRun& run, int64_t num_labels) {
  using Scores = LossFacts::Scores;
  const LossFacts facts = run.recipe().loss[0].facts({});
  if (facts.learns_numbers()) return "regression";
  const bool chooses = facts.of_classes != Scores::kNone &&
                       (facts.of_one == Scores::kNone || compares_with_classes(run.recipe(), run.contract()));
  if (chooses) return "single_label_classification";
  if (facts.of_one != Scores::kNone || facts.target == LossFacts::Target::kClasses) return "multi_label_classification";
  if (num_labels == 1) return "regression";  // a reward
  return std::nullopt;
}

std::vector<std::string> output_names(const DataContract& contract, int64_t num_labels) {
  const FieldContract* target = contract.target_field();
  if (!target) return {};
  const auto count = static_cast<size_t>(num_labels);
  const std::vector<std::string>& classes = target->class_names;
  if (target->names_within.size() == count) return target->names_within;
  if (count == 1 && classes.size() == 2) return {classes[1]};  // how probable that one is
  if (count == 1 && classes.empty() && !target->called.empty()) return {target->called};
  return classes.size() <= count ? classes : std::vector<std::string>();
}

std::vector<std::string> name_outputs(const TrainedRun& run, nlohmann::json& config) {
  if (!config.contains("id2label")) return {};
  const auto count = static_cast<int64_t>(config["id2label"].size());
  const std::vector<std::string> names = output_names(run.contract(), count);
  for (size_t i = 0; i < names.size(); ++i) config["id2label"][std::to_string(i)] = names[i];
  config["label2id"] = nlohmann::json::object();
  std::vector<std::string> labels;
  for (int64_t i = 0; i < count; ++i) {
    const std::string number = std::to_string(i);
    labels.push_back(config["id2label"].value(number, "LABEL_" + number));
    config["label2id"][labels.back()] = i;
  }
  const auto architecture = config["architectures"][0].get<std::string>();
  const bool is_of_samples =
      architecture.ends_with("ForSequenceClassification") || architecture.ends_with("ForImageClassification");
  const auto problem = problem_type_of(run, count);
  if (is_of_samples && problem) config["problem_type"] = *problem;
  const bool has_names = !names.empty() || labels[0] != "LABEL_0";
  return has_names ? labels : std::vector<std::string>();
}

std::optional<int64_t> most_tokens(const DataContract& contract) {
  for (const FieldContract& field : contract.fields) {
    if (holds_tokens(field.info.name) && field.info.shape.size() == 1) return field.info.shape[0];
  }
  return std::nullopt;
}

std::vector<std::string> ways_back(const DataContract& contract) {
  constexpr int kFigures = 9;
  const FieldContract* target = contract.target_field();
  if (!target || !target->scaling) return {};
  const Scaling& scaling = *target->scaling;
  std::vector<std::string> ways;
  for (size_t i = 0; i < scaling.scale.size(); ++i) {
    const std::string name =
        target->names_within.size() == scaling.scale.size() ? target->names_within[i] : target->title();
    const double offset = scaling.offset.at(i);
    ways.push_back("The target (`" + name + "`) was scaled for training. In its own units it is the model's output × " +
                   in_figures(scaling.scale[i], kFigures) + (offset < 0 ? " - " : " + ") +
                   in_figures(std::abs(offset), kFigures) + ".");
  }
  return ways;
}

FileMetadata file_metadata(TrainedRun& run) {
  FileMetadata metadata = {
      {"format", "pt"}, {"trainrun.version", TRAINRUN_VERSION}, {"trainrun.contract", run.contract().to_json().dump()}};
  try {
    const auto tokenizer = tokenizer_of_data(run, pretrained_folder(run.model().graph()));
    if (tokenizer) metadata["trainrun.tokenizer_sha256"] = digest_of(*tokenizer);
  } catch (const DataError& error) {  // the weights are worth having without it
    run.add_notes({std::string(error.what()) + ". The file does not say its digest."});
  }
  return metadata;
}

}  // namespace trainrun
