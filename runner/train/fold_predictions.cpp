#include "runner/train/fold_predictions.h"

#include <ATen/core/Tensor.h>

#include <algorithm>

#include "registry/formats/files/csv_text.h"
#include "registry/formats/files/file_io.h"
#include "registry/kinds/dataset_facts.h"
#include "registry/kinds/loss.h"
#include "registry/language/text_forms.h"
#include "runner/data/data.h"
#include "runner/train/prediction.h"

namespace trainrun {
namespace {

/// Lines by the numbers of their samples; below names.
struct HeldOutLines {
  std::vector<std::string> names;
  std::vector<std::vector<std::string>> of_samples;

  void name(const std::vector<std::string>& columns, const std::string& run) {
    if (names.empty()) names = columns;
    if (names != columns) throw Error(run + " predicts other columns (" + join(columns) + ") than the fold before it");
  }
};

bool gives_classes(const Recipe& recipe) {
  const LossFacts facts = recipe.loss[0].facts({});
  return !facts.learns_numbers();
}

void predict_classes(TrainedRun& run, const std::string& folder, const int64_t* samples, HeldOutLines& lines) {
  std::vector<std::string> classes;
  const auto begin = [&](const PredictedClasses& predicted) {
    classes = predicted.names;
    std::vector<std::string> columns = {"label", "probability"};
    for (const std::string& name : classes) columns.push_back("p(" + name + ")");
    lines.name(columns, folder);
  };
  size_t next = 0;
  predict(run, std::nullopt, begin, [&](const Prediction& prediction) {
    std::vector<std::string>& line = lines.of_samples.at(static_cast<size_t>(samples[next++]));
    line = {classes[prediction.label], in_figures(prediction.probabilities[prediction.label], 6)};
    for (const double probability : prediction.probabilities) line.push_back(in_figures(probability, 6));
  });
}

/// "price", "rent"; or "prediction", "prediction[1]" where the numbers have no names.
std::vector<std::string> number_names(const Dataset& data, int64_t count) {
  std::vector<std::string> within = data.facts().field(data.info().target).names_within;
  if (static_cast<int64_t>(within.size()) == count) return within;
  std::vector<std::string> names;
  for (int64_t i = 0; i < count; ++i)
    names.push_back(count == 1 ? "prediction" : "prediction[" + std::to_string(i) + "]");
  return names;
}

void predict_numbers(TrainedRun& run, const std::string& folder, const int64_t* samples, HeldOutLines& lines) {
  const auto data = open_evaluated(run);
  size_t next = 0;
  for_each_output(run, *data, [&](const at::Tensor& output, int64_t size) {
    const at::Tensor rows = output.to(at::kCPU, at::kDouble).reshape({size, -1}).contiguous();
    lines.name(number_names(*data, rows.size(1)), folder);
    const double* number = rows.const_data_ptr<double>();
    for (int64_t row = 0; row < rows.size(0); ++row) {
      std::vector<std::string>& line = lines.of_samples.at(static_cast<size_t>(samples[next++]));
      for (int64_t i = 0; i < rows.size(1); ++i) line.push_back(in_figures(*number++, 6));
    }
  });
}

}  // namespace

void predict_held_out(const LoadedRecipe& loaded, const std::vector<std::string>& runs, const Catalog& catalog,
                      const std::string& path) {
  const DatasetSection& section = loaded.recipe.dataset;
  const auto seed = static_cast<uint64_t>(loaded.recipe.seed);
  const auto whole = open_data(*section.whole, loaded.recipe);
  HeldOutLines lines;
  lines.of_samples.resize(static_cast<size_t>(whole->size()));
  std::vector<size_t> folds(lines.of_samples.size());
  for (size_t fold = 0; fold < runs.size(); ++fold) {
    const at::Tensor samples = section.held_out(*whole, static_cast<int64_t>(fold), seed);
    const int64_t* numbers = samples.const_data_ptr<int64_t>();
    for (int64_t i = 0; i < samples.numel(); ++i) folds[static_cast<size_t>(numbers[i])] = fold;
    Catalog own = catalog;
    TrainedRun run(find_trained(runs[fold]), {}, own);
    if (gives_classes(run.recipe())) {
      predict_classes(run, runs[fold], numbers, lines);
    } else {
      predict_numbers(run, runs[fold], numbers, lines);
    }
  }
  const DatasetFacts facts = whole->facts();
  std::vector<std::string> header = {"sample"};
  std::vector<std::vector<std::string>> ids;
  for (const std::string& name : facts.ids) {
    header.push_back(name);
    ids.push_back(facts.texts(name));
  }
  header.emplace_back("fold");
  header.insert(header.end(), lines.names.begin(), lines.names.end());
  write_file_atomically(path, [&](FileWriter& file) {
    file.write(csv_record(header));
    for (size_t i = 0; i < folds.size(); ++i) {
      std::vector<std::string> line = {std::to_string(i)};
      for (const std::vector<std::string>& texts : ids) line.push_back(texts.at(i));
      line.push_back(std::to_string(folds[i]));
      line.insert(line.end(), lines.of_samples[i].begin(), lines.of_samples[i].end());
      file.write(csv_record(line));
    }
  });
}

}  // namespace trainrun
