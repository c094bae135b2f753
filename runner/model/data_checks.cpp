#include "runner/model/data_checks.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/std_mean.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "registry/graph/flatten.h"
#include "registry/kinds/dataset_facts.h"
#include "registry/language/text_forms.h"
#include "registry/models/language_model.h"

namespace trainrun {
namespace {

bool is_batch_norm(const std::string& type) {
  return type.find("BatchNorm") != std::string::npos && type.find("Instance") == std::string::npos;
}

/// Of one sample, each channel's values in the layer's input [N, C, …].
int64_t values_of_channel(const Graph::Node& node) {
  const std::vector<int64_t>& shape = node.input_shapes.at(0);
  if (shape.size() < 2) return 0;
  int64_t values = shape[0];
  for (size_t dim = 2; dim < shape.size(); ++dim) values *= shape[dim];
  return values / kExampleBatch;
}

/// What training does about batches of one sample: "" where there is none.
std::string lone_sample(const Recipe& recipe, int64_t num_samples, int64_t world_size, std::string& cure) {
  const DataloaderSection& loader = recipe.dataloader;
  if (const auto sampler = loader.chosen_sampler()) num_samples = sampler->num_samples.value_or(num_samples);
  const int64_t own = (num_samples + world_size - 1) / world_size;
  if (loader.batch_size == 1) {
    cure = "a larger dataloader.batch_size";
    return "batch_size is 1";
  }
  if (loader.drop_last || own % loader.batch_size != 1) return "";
  cure = "dataloader.drop_last: true, or another batch_size";
  return "the last batch of an epoch has one sample, " + std::to_string(own) + " samples" +
         (world_size > 1 ? " a process" : "") + " in batches of " + std::to_string(loader.batch_size);
}

bool is_normalization(const std::string& type) { return type.find("Norm") != std::string::npos; }

/// Whether a layer other than a normalization reads the field straight from the batch.
bool is_read_as_it_is(const Graph& graph, const std::string& field) {
  const auto slot = graph.slot(field);
  if (!slot || *slot >= graph.input_names().size()) return false;
  for (const Graph::Node& node : graph.nodes()) {
    const bool reads = std::find(node.inputs.begin(), node.inputs.end(), *slot) != node.inputs.end();
    if (reads && !is_normalization(node.type)) return true;
  }
  return false;
}

/// "85000", "1.2e+09"
std::string rounded(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", number);
  return text;
}

/// Some of the training samples, as they reach the model.
Batch some_samples(const Dataset& data, const DataLoader::Transforms& transforms) {
  constexpr int64_t kMost = 512;
  const int64_t count = std::min(kMost, data.size());
  const at::Tensor places = at::linspace(0, static_cast<double>(data.size() - 1), count, at::kDouble).to(at::kLong);
  Batch batch = data.get(places);
  std::vector<int64_t> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  for (size_t i = 0; i < transforms.size(); ++i) {
    if (!transforms[i]->pairs()) transforms[i]->apply(batch, SampleDraws({0, 0, static_cast<int64_t>(i)}, numbers));
  }
  return batch;
}

/// "ant is 0, bee is 1"; "" where the classes are called by their numbers, or have no names.
std::string numbered(const std::vector<std::string>& classes) {
  constexpr size_t kMostNamed = 5;
  std::vector<std::string> words;
  bool differ = false;
  for (size_t i = 0; i < classes.size(); ++i) {
    differ = differ || classes[i] != std::to_string(i);
    words.push_back(classes[i] + " is " + std::to_string(i));
  }
  return differ ? join_first(words, kMostNamed) : "";
}

/// A line where numbers to be learnt reach the loss much larger or smaller than a model's first outputs, about 1.
void add_unusual_deviations(const FieldInfo& target, const Dataset& data, const DataLoader::Transforms& transforms,
                            const Component<LossKind>& loss, std::vector<std::string>& warnings) {
  constexpr double kFarFromOne = 30;
  if (target.shape.size() > 1 || data.size() < 2) return;
  const at::Tensor all = some_samples(data, transforms).at(target.name).to(at::kDouble);
  const at::Tensor rows = all.reshape({all.size(0), -1});  // [N, K]
  if (rows.numel() == 0) return;
  const at::Tensor deviations = std::get<0>(at::std_mean(rows, {0}, /*correction=*/0));
  const std::vector<std::string> names = data.facts().field(target.name).names_within;
  for (int64_t i = 0; i < deviations.numel(); ++i) {
    const auto deviation = deviations[i].item<double>();
    if (!(deviation >= kFarFromOne) && !(deviation <= 1 / kFarFromOne)) continue;
    const auto mean = rows.select(1, i).mean().item<double>();
    const bool named = names.size() == static_cast<size_t>(deviations.numel());
    const std::string column = deviations.numel() == 1 ? "" : named ? names[static_cast<size_t>(i)] : std::to_string(i);
    const std::string name = "'" + target.name + (column.empty() ? "" : "." + column) + "'";
    const std::string fault =
        deviation == 0 ? name + " is " + rounded(mean) + " in all samples that were looked at, so that " + loss.type +
                             " has nothing to tell apart"
                       : "the numbers of " + name + " have a standard deviation of " + rounded(deviation) + " around " +
                             rounded(mean) + ", and " + loss.type +
                             " learns best where it is about 1; add {type: Standardize, field: " + target.name +
                             "} to dataset.transforms";
    warnings.push_back(loss.path + ": " + fault);
    return;
  }
}

/// A line where a loss that learns cosines reads scores that none can be.
void add_scores_beyond_cosines(const FieldInfo& target, const Dataset& data, const DataLoader::Transforms& transforms,
                               const Component<LossKind>& loss, std::vector<std::string>& warnings) {
  if (loss.type != "CosineSimilarityLoss" || data.size() == 0) return;
  const at::Tensor scores = some_samples(data, transforms).at(target.name).to(at::kDouble);
  const auto least = scores.min().item<double>();
  const auto most = scores.max().item<double>();
  if (least >= -1 && most <= 1) return;
  warnings.push_back(loss.path + ": " + loss.type + " learns cosines, which are from -1 to 1, but the scores in '" +
                     target.name + "' go from " + rounded(least) + " to " + rounded(most) +
                     "; divide them in the file, or write loss: CoSENTLoss, which reads their order alone");
}

/// A line where a loss that learns classes reads numbers that no class, probability or yes and no can be.
void add_numbers_that_are_no_classes(const FieldInfo& target, const Dataset& data,
                                     const DataLoader::Transforms& transforms, const Component<LossKind>& loss,
                                     const LossFacts& facts, std::vector<std::string>& warnings) {
  constexpr double kRoughly = 1e-3;
  const bool of_each = facts.of_one != LossFacts::Scores::kNone;  // whether each number is a yes or no of its own
  if (!of_each && facts.of_classes == LossFacts::Scores::kNone) return;
  const at::Tensor rows = some_samples(data, transforms).at(target.name).to(at::kDouble);
  if (rows.numel() == 0) return;
  const auto least = rows.min().item<double>();
  const auto most = rows.max().item<double>();
  const std::string learns =
      loss.path + ": " + loss.type + " learns classes, but the numbers of '" + target.name + "' ";
  const std::string cure =
      "; to learn numbers write loss: MSELoss, for classes write task: classification in the data set";
  if (!(least >= 0) || !(most <= 1)) {
    warnings.push_back(learns + "go from " + rounded(least) + " to " + rounded(most) +
                       (of_each ? ", and not from 0, for no, to 1, for yes" : ", which are no probabilities") + cure);
  } else if (!of_each && rows.dim() == 2 && (rows.sum(1) - 1).abs().max().item<double>() > kRoughly) {
    warnings.push_back(learns + "do not add up to 1 in each sample, as the probabilities of its classes do" + cure);
  }
}

/// A line where all samples are of one class.
void add_lone_class(const FieldInfo& target, const Dataset& data, const Component<LossKind>& loss,
                    std::vector<std::string>& warnings) {
  const at::Tensor held = data.facts().held(target.name);
  if (!held.defined() || held.numel() < 2 || held.dim() != 1 || held.scalar_type() != at::kLong) return;
  const auto first = held[0].item<int64_t>();
  if (!held.eq(first).all().item<bool>()) return;
  const std::vector<std::string> names = data.facts().field(target.name).class_names;
  const bool is_named = first >= 0 && static_cast<size_t>(first) < names.size();
  warnings.push_back(loss.path + ": all " + std::to_string(held.numel()) + " samples of dataset.train have the class " +
                     (is_named ? "'" + names[static_cast<size_t>(first)] + "'" : std::to_string(first)) + " in '" +
                     target.name + "', so that " + loss.type + " has nothing to tell apart");
}

}  // namespace

void check_tokens(const Recipe& recipe, const DatasetInfo& info) {
  const auto& fields = info.fields;
  const bool has_tokens =
      std::any_of(fields.begin(), fields.end(), [](const FieldInfo& field) { return holds_tokens(field.name); });
  if (!recipe.training.max_tokens || has_tokens) return;
  throw RecipeError(
      {{{}, "training.max_tokens", "the batches have no field input_ids, so there are no tokens to count"}});
}

void check_batch_norms(const Recipe& recipe, const Graph& graph, int64_t num_samples, int64_t world_size) {
  std::string cure;
  const std::string why = lone_sample(recipe, num_samples, world_size, cure);
  if (why.empty()) return;
  std::vector<Problem> problems;
  for (const FlatLayer& layer : flatten(graph).layers) {
    const Graph::Node& node = *layer.node;
    if (!is_batch_norm(node.type) || values_of_channel(node) != 1) continue;
    const bool over_ranks = world_size > 1 && (node.type == "SyncBatchNorm" || recipe.sync_batchnorm);
    if (over_ranks) continue;  // each has a sample
    problems.push_back(
        {layer.written->place, layer.written->path,
         node.type + " cannot normalize one value per channel in training, and " + why + "; write " + cure});
  }
  if (!problems.empty()) throw RecipeError(problems);
}

std::vector<std::string> scale_warnings(const Recipe& recipe, const Graph& graph, const Dataset& data,
                                        const DataLoader::Transforms& transforms) {
  constexpr double kLarge = 1e3;
  constexpr size_t kMostNamed = 5;
  std::vector<std::string> warnings;
  const DatasetInfo info = data.info();
  const auto fits = [&](const FieldInfo& field) {
    return field.name != info.target && at::isFloatingType(field.dtype) && !field.shape.empty() &&
           field.shape.size() <= 2 && is_read_as_it_is(graph, field.name);
  };
  if (data.size() == 0 || std::none_of(info.fields.begin(), info.fields.end(), fits)) return warnings;
  const Batch batch = some_samples(data, transforms);
  for (const FieldInfo& field : info.fields) {
    if (!fits(field)) continue;
    const at::Tensor rows = batch.at(field.name).to(at::kDouble);
    if (rows.dim() < 2 || rows.size(-1) == 0) continue;
    const at::Tensor largest = std::get<0>(rows.reshape({-1, rows.size(-1)}).abs().max(0));  // [F]
    const std::vector<std::string> names = data.facts().field(field.name).number_names();
    std::vector<std::string> large;
    for (int64_t i = 0; i < largest.numel(); ++i) {
      const auto value = largest[i].item<double>();
      if (!(value >= kLarge)) continue;
      const bool named = names.size() == static_cast<size_t>(largest.numel());
      const std::string name = named ? names[static_cast<size_t>(i)] : field.name + "[" + std::to_string(i) + "]";
      large.push_back("'" + name + "' (up to " + rounded(value) + ")");
    }
    if (large.empty()) continue;
    const size_t rest = large.size() - std::min(large.size(), kMostNamed);
    large.resize(large.size() - rest);
    const std::string transform =
        field.name == "features" ? "Standardize" : "{type: Standardize, field: " + field.name + "}";
    warnings.push_back(recipe.dataset.train.path +
                       ": the model learns best from numbers of about 1 and gets larger ones: " + join(large) +
                       (rest > 0 ? " and " + std::to_string(rest) + " more" : "") +
                       (recipe.dataset.transforms.empty() ? "; write dataset.transforms: [" + transform + "]"
                                                          : "; add " + transform + " to dataset.transforms"));
  }
  return warnings;
}

std::vector<std::string> target_warnings(const Recipe& recipe, const DatasetInfo& info, const Dataset& data,
                                         const DataLoader::Transforms& transforms) {
  std::vector<std::string> warnings;
  const FieldInfo* target = info.find(info.target);
  if (!target || data.size() == 0) return warnings;
  for (const Component<LossKind>& loss : recipe.loss) {
    const Names& inputs = loss.common.inputs;
    const bool reads = inputs.empty() || std::find(inputs.begin(), inputs.end(), target->name) != inputs.end();
    const LossFacts facts = loss.facts({});
    if (!reads) continue;
    if (facts.target == LossFacts::Target::kClasses) {
      if (at::isFloatingType(target->dtype)) {
        add_numbers_that_are_no_classes(*target, data, transforms, loss, facts, warnings);
      } else {
        add_lone_class(*target, data, loss, warnings);
      }
    }
    if (!facts.learns_numbers()) continue;
    if (at::isFloatingType(target->dtype)) {
      if (facts.target == LossFacts::Target::kNumbers) {
        add_unusual_deviations(*target, data, transforms, loss, warnings);
        add_scores_beyond_cosines(*target, data, transforms, loss, warnings);
      }
    } else if (const std::string text = numbered(data.facts().field(target->name).class_names); !text.empty()) {
      warnings.push_back(loss.path + ": " + loss.type + " learns numbers, but '" + target->name +
                         "' is the number of a class: " + text);
    }
    break;
  }
  return warnings;
}

std::string inferred_text(const nlohmann::json& inferred) {
  if (!inferred.contains("columns")) return "";
  std::vector<std::string> parts;
  for (const auto& column : inferred.at("columns")) {
    std::string part = column.at("name").get<std::string>() + " " + column.at("type").get<std::string>();
    if (column.contains("categories")) part += " of " + std::to_string(column["categories"].size());
    const auto missing = column.at("missing_values").get<int64_t>();
    if (missing > 0) part += " (" + std::to_string(missing) + " missing)";
    parts.push_back(part);
  }
  return inferred.at("path").get<std::string>() + ", " + std::to_string(inferred.at("rows").get<int64_t>()) +
         " rows, columns: auto: " + join(parts);
}

}  // namespace trainrun
