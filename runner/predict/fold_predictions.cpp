#include "runner/predict/fold_predictions.h"

#include "registry/formats/files/csv_text.h"
#include "registry/formats/files/file_io.h"
#include "registry/kinds/dataset_facts.h"
#include "runner/data/data.h"
#include "runner/predict/prediction.h"
#include "runner/predict/prediction_writer.h"

namespace trainrun {
namespace {

/// What the folds predict, each line with its end.
struct HeldOutLines {
  std::string head;
  std::vector<std::string> of_samples;
};

/// Takes the predictions for the samples that one fold held out, as lines of CSV by the samples' numbers.
class HeldOutWriter : public PredictionWriter {
 public:
  HeldOutWriter(std::string run, const int64_t* samples, HeldOutLines& lines)
      : run_(std::move(run)), samples_(samples), lines_(lines) {}

  void write(const ResultColumns& columns) override {
    ResultColumns own = contiguous(columns);
    own.erase(own.begin());  // the sample's number within the fold
    const std::string head = csv_->head(own);
    if (lines_.head.empty()) lines_.head = head;
    if (lines_.head != head) throw Error(run_ + " predicts other columns (" + head + ") than the fold before it");
    for (int64_t row = 0; row < own.at(0).size(); ++row) {
      csv_->append(lines_.of_samples.at(static_cast<size_t>(samples_[next_++])), own, row);
    }
  }
  void finish() override {}

 private:
  std::string run_;
  const int64_t* samples_;
  HeldOutLines& lines_;
  std::unique_ptr<LineMaker> csv_ = csv_lines();
  int64_t next_ = 0;
};

/// A line whose last columns are a line already.
std::string joined(const std::vector<std::string>& first, const std::string& rest) {
  std::string line = csv_record(first);
  line.pop_back();
  return line + "," + rest;
}

}  // namespace

void predict_held_out(const LoadedRecipe& loaded, const std::vector<std::string>& runs, const Catalog& catalog,
                      const std::string& folder) {
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
    HeldOutWriter writer(runs[fold], numbers, lines);
    PredictOptions options;
    options.outcome.masks = folder + "/masks";
    predict(run, options, writer);
  }
  const DatasetFacts facts = whole->facts();
  std::vector<std::string> header = {"sample"};
  std::vector<std::vector<std::string>> ids;
  for (const std::string& name : facts.ids) {
    header.push_back(name);
    ids.push_back(facts.texts(name));
  }
  header.emplace_back("fold");
  write_file_atomically(folder + "/predictions.csv", [&](FileWriter& file) {
    file.write(joined(header, lines.head));
    for (size_t i = 0; i < folds.size(); ++i) {
      std::vector<std::string> line = {std::to_string(i)};
      for (const std::vector<std::string>& texts : ids) line.push_back(texts.at(i));
      line.push_back(std::to_string(folds[i]));
      file.write(joined(line, lines.of_samples[i]));
    }
  });
}

}  // namespace trainrun
