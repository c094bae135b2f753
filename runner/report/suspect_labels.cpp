#include "runner/report/suspect_labels.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/nanmean.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "registry/kinds/dataset_facts.h"
#include "registry/language/error.h"
#include "registry/language/text_forms.h"
#include "registry/tensors/component_error.h"
#include "registry/tensors/files/safetensors.h"
#include "runner/data/data.h"
#include "runner/model/recipe_loader.h"
#include "runner/train/sample_losses.h"

namespace trainrun {
namespace {

/// A run that went on from another's checkpoint begins later than at 0.
int64_t first_epoch_in(const std::string& run) {
  constexpr int64_t kMostEpochs = 100'000;
  if (!std::filesystem::exists((std::filesystem::path(run) / sample_loss_file(0)).parent_path())) return 0;
  int64_t epoch = 0;
  while (epoch < kMostEpochs && !std::filesystem::exists(run + "/" + sample_loss_file(epoch))) ++epoch;
  return epoch;
}

/// [epochs, N] float64, of whole epochs, or of the only one that there is.
at::Tensor losses_in(const std::string& run) {
  std::vector<at::Tensor> whole, all;
  for (int64_t epoch = first_epoch_in(run);; ++epoch) {
    const std::string path = run + "/" + sample_loss_file(epoch);
    if (!std::filesystem::exists(path)) break;
    const SafetensorsContent content = read_safetensors(path);
    if (content.tensors.size() != 1 || content.tensors[0].first != "loss" || content.tensors[0].second.dim() != 1) {
      throw DataError(path + " does not hold the losses of samples");
    }
    all.push_back(content.tensors[0].second.to(at::kDouble));
    if (all.back().sizes() != all[0].sizes()) throw DataError(path + " is of other data than the epochs before it");
    const auto mark = content.metadata.find("whole_epoch");
    if (mark != content.metadata.end() && mark->second == "yes") whole.push_back(all.back());
  }
  if (all.empty()) return {};
  return at::stack(whole.empty() ? all : whole);
}

std::string given_label(const at::Tensor& label, const std::vector<std::string>& names) {
  constexpr int kShown = 4;
  if (label.numel() != 1) return "";
  if (label.is_floating_point()) return in_figures(label.item<double>(), kShown);
  const auto number = label.item<int64_t>();
  const bool is_named = number >= 0 && number < static_cast<int64_t>(names.size());
  return is_named ? names[static_cast<size_t>(number)] : std::to_string(number);
}

void name_samples(const std::string& run, Catalog& catalog, SuspectLabels& suspects, int64_t samples) {
  const LoadedRecipe loaded = load_recipe(run + "/recipe.yaml", {}, catalog, InitialWeights::kUnneeded);
  const auto data = open_data(loaded.recipe.dataset.train, loaded.recipe);
  share_learnt(*data, nullptr);
  if (data->size() != samples) {
    throw Error("they have " + std::to_string(data->size()) + " samples now, and had " + std::to_string(samples));
  }
  const DatasetFacts facts = data->facts();
  const std::string field = data->info().target;
  const std::vector<std::string> names = facts.field(field).class_names;
  for (SuspectLabels::One& one : suspects.highest) {
    one.place = facts.place(one.number, field);
    for (const std::string& column : {facts.field(field).called, field}) {
      if (column.empty() || !one.place.ends_with(":" + column)) continue;
      one.place.resize(one.place.size() - column.size() - 1);
      break;
    }
    if (one.place == "sample " + std::to_string(one.number)) one.place.clear();
    one.label = given_label(data->get(at::tensor({one.number}, at::kLong)).at(field), names);
  }
}

}  // namespace

std::optional<SuspectLabels> read_suspect_labels(const std::string& run, Catalog& catalog) {
  constexpr int64_t kShare = 20, kMost = 100;
  const at::Tensor losses = losses_in(run);
  if (!losses.defined()) return std::nullopt;
  const at::Tensor means = at::nanmean(losses, 0);
  std::vector<std::pair<double, int64_t>> order;  // of those that came at all
  for (int64_t i = 0; i < means.size(0); ++i) {
    const auto mean = means[i].item<double>();
    if (!std::isnan(mean)) order.emplace_back(mean, i);
  }
  std::ranges::stable_sort(order, std::ranges::greater(), &std::pair<double, int64_t>::first);
  SuspectLabels suspects;
  suspects.samples = static_cast<int64_t>(order.size());
  suspects.epochs = losses.size(0);
  if (order.empty()) return suspects;
  suspects.median = order[order.size() / 2].first;
  const int64_t shown = std::clamp<int64_t>(suspects.samples / kShare, 1, kMost);
  for (int64_t i = 0; i < shown; ++i) {
    const auto& [mean, number] = order[static_cast<size_t>(i)];
    suspects.highest.push_back({number, mean, losses[-1][number].item<double>(), "", ""});
  }
  try {
    name_samples(run, catalog, suspects, means.size(0));
  } catch (const std::exception& error) {
    suspects.notes.push_back("the training data are not there to name places and labels: " + error_text(error));
  }
  return suspects;
}

}  // namespace trainrun
