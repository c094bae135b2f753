#include "runner/predict/prediction.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <set>

#include "registry/kinds/dataset_facts.h"
#include "registry/language/error.h"
#include "registry/text_data/tagged_texts.h"
#include "runner/data/data.h"
#include "runner/data/data_part.h"
#include "runner/loggers/terminal.h"
#include "runner/predict/predicted_data.h"
#include "runner/predict/prediction_writer.h"
#include "runner/train/occasion.h"
#include "runner/train/step_errors.h"

namespace trainrun {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kBetweenMarks(1);
constexpr size_t kMostToldOf = 20;  // samples that are left out

/// A line at the terminal while predictions go to a file.
class Progress {
 public:
  explicit Progress(bool is_shown) : is_shown_(is_shown && Terminal::standard().has_status()), begun_(Clock::now()) {}
  ~Progress() {
    if (is_shown_) Terminal::standard().set_status("");
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void show(int64_t count, std::optional<int64_t> all) {
    constexpr std::chrono::milliseconds kBetween(100);
    const Clock::time_point now = Clock::now();
    if (!is_shown_ || now - shown_ < kBetween) return;
    shown_ = now;
    const double seconds = std::chrono::duration<double>(now - begun_).count();
    std::string text = "predict " + std::to_string(count);
    if (all && *all > 0) text += " of " + std::to_string(*all) + " (" + std::to_string(100 * count / *all) + "%)";
    text += ", " + std::to_string(static_cast<int64_t>(static_cast<double>(count) / std::max(seconds, 1e-3))) + "/s";
    Terminal::standard().set_status(text.substr(0, Terminal::standard().width() - 1));
  }

 private:
  bool is_shown_;
  Clock::time_point begun_;
  Clock::time_point shown_;
};

/// A model's losses that say what its outputs mean, each of another output; where none does, the first loss.
std::vector<size_t> telling_losses(const Recipe& recipe, const Model& model) {
  std::vector<size_t> chosen;
  std::set<std::vector<size_t>> outputs;
  for (size_t i = 0; i < recipe.loss.size(); ++i) {
    const LossFacts facts = recipe.loss[i].facts({});
    const bool tells =
        !model.loss_target(i).empty() && (facts.target == LossFacts::Target::kClasses ||
                                          facts.target == LossFacts::Target::kUnsaid || facts.learns_numbers());
    if (tells && outputs.insert(model.loss_slots(i)).second) chosen.push_back(i);
  }
  if (chosen.empty()) chosen.push_back(0);
  return chosen;
}

class Prediction {
 public:
  Prediction(TrainedRun& run, const PredictOptions& options, PredictionWriter* writer)
      : run_(run),
        options_(options),
        progress_(!options.output.empty()),
        writer_(writer),
        local_(local_data(options.data, options.hub_rows)) {}

  PredictSummary operator()() {
    require_format();
    std::unique_ptr<PredictionWriter> own;
    if (!writer_) own = open_prediction_writer(options_.format, options_.output, identity());
    if (own) writer_ = own.get();
    if (!writer_->note().empty()) run_.add_notes({writer_->note()});
    point_ = writer_->begin();
    const bool replaces = point_.num_read == 0 && std::filesystem::is_regular_file(options_.output);
    marked_ = Clock::now();
    PredictedSource source;
    source.paths = local_.paths;
    source.begin = point_.num_read;
    source.are_others = std::any_of(options_.identity.begin(), options_.identity.end(), names_evaluation_data);
    if (options_.broken == BrokenSamples::kSkip) source.broken = [this](const std::string& fault) { leave_out(fault); };
    const auto data = open_predicted(run_, source);
    const at::NoGradGuard no_gradients;
    run_.model().train(false);
    const EvaluationScope scope(run_.callbacks());
    while (auto piece = data->next()) {
      predict_piece(*piece, *data, scope);
    }
    if (point_.num_read == 0) throw DataError(data_name() + ": has no rows");
    writer_->finish();
    if (replaces) run_.add_notes({options_.output + " was there already, and has been replaced"});
    add_notes(local_.notes);
    add_notes(writer_->notes());
    add_notes(data->notes());
    summary_.num_read = point_.num_read;
    summary_.num_written = point_.num_written;
    summary_.num_left_out = point_.num_left_out;
    return summary_;
  }

 private:
  /// Before a file is begun.
  void require_format() const {
    const FieldContract* target = run_.contract().target_field();
    const bool are_words = target && !target->class_names.empty() && target->info.shape.size() == 1;
    if (options_.format != "conll" || are_words) return;
    throw Error(
        "predict: CoNLL has a word and its tag in each line, which are for a model of words (TokenClassification), and "
        "this one is of " +
        run_.recipe().dataset.train.type + " data; write --output FILE.csv, .jsonl, .parquet or .npz");
  }
  /// Before a row is written.
  void require_effects() const {
    const auto any = [&](bool (Outcome::*uses)() const) {
      return std::ranges::any_of(outcomes_, [&](const auto& outcome) { return (outcome.get()->*uses)(); });
    };
    const std::string others =
        ", and this one, which is trained by " + run_.recipe().loss[losses_[0]].type + ", does not; leave it out";
    const bool has_classes = any(&Outcome::uses_top_k);
    if (options_.outcome.top_k && !has_classes) {
      throw Error("predict: --top-k writes only the most probable classes of a model that gives each sample one class" +
                  others);
    }
    if (!options_.outcome.threshold || any(&Outcome::uses_threshold)) return;
    throw Error(
        "predict: --threshold is the probability from which on a sample has a label, for a model that gives each "
        "sample "
        "any number of several labels" +
        others +
        (has_classes ? ". It writes the most probable class, and the probability of each, which can be compared with a "
                       "threshold afterwards"
                     : ""));
  }
  void leave_out(const std::string& fault) {
    ++point_.num_left_out;
    if (summary_.left_out.size() < kMostToldOf) summary_.left_out.push_back(fault);
  }
  std::string data_name() const { return options_.data.empty() ? "dataset.eval" : join(options_.data); }
  void add_notes(std::vector<std::string> notes) {
    for (std::string& note : notes) {
      const bool names_it = note.starts_with(data_name() + ":") || note.starts_with("standard input:");
      if (!names_it) note = data_name() + ": " + note;
    }
    run_.add_notes(notes);
  }

  nlohmann::json identity() const {
    return {{"checkpoint", run_.checkpoint()},
            {"model", identity_of({run_.checkpoint() + "/model.safetensors"})},
            {"data", identity_of(local_.paths)},
            {"format", options_.format},
            {"top_k", options_.outcome.top_k.value_or(0)},
            {"threshold", options_.outcome.threshold.value_or(0.5)},
            {"masks", options_.outcome.masks},
            {"skips", options_.broken == BrokenSamples::kSkip},
            {"more", options_.identity}};
  }

  /// More than in an evaluation where a sample is a few numbers.
  int64_t batch_size(const DatasetInfo& info) const {
    constexpr int64_t kSmall = 4096;
    if (options_.batch_size) return *options_.batch_size;
    const int64_t own = loader_options(run_.recipe(), nullptr, false).batch_size;
    const bool is_small = std::all_of(info.fields.begin(), info.fields.end(), [&](const FieldInfo& field) {
      return field.name == info.target || (field.shape.size() <= 1 && at::isFloatingType(field.dtype));
    });
    return is_small ? std::max(own, kSmall) : own;
  }

  void predict_piece(UnlabelledData::Piece& piece, const UnlabelledData& data, const EvaluationScope& scope) {
    const Recipe& recipe = run_.recipe();
    const Dataset& samples = *piece.samples;
    const int64_t before = point_.num_read;
    if (samples.size() > 0) {
      DataTransforms transforms(recipe, nullptr, {samples.info()});
      transforms.set_learnt(run_.contract().transforms);
      DataLoaderOptions options = loader_options(recipe, nullptr, false);
      options.batch_size = batch_size(samples.info());
      const DataLoader loader(samples, transforms.evaluation(), options, run_.device());
      const auto batches = loader.iterate(0);
      const bool is_whole = piece.num_read == samples.size();  // so that each row is a sample that was read
      int64_t row = 0;
      for (Occasion occasion{Occasion::Phase::kEvaluation, 0, 0, 0};; ++occasion.batch) {
        const auto batch = named("making a batch", occasion, [&] { return batches->next(); });
        if (!batch) break;
        write(*batch, row, piece, scope, occasion);
        row += batch->size();
        if (is_whole) point_.num_read = before + row;
        if (is_whole) mark_now_and_then();
        progress_.show(point_.num_read, data.size());
      }
    }
    point_.num_read = before + piece.num_read;
    mark_now_and_then();
  }

  void mark_now_and_then() {
    if (Clock::now() - marked_ < kBetweenMarks) return;
    writer_->mark(point_);
    marked_ = Clock::now();
  }

  void write(const Batch& batch, int64_t first, UnlabelledData::Piece& piece, const EvaluationScope& scope,
             const Occasion& occasion) {
    Model& model = run_.model();
    const Tensors outputs = named("the prediction", occasion, [&] {
      return scope.predict(batch, [&](const Batch& given) { return model.forward(given); });
    });
    if (outcomes_.empty()) losses_ = telling_losses(run_.recipe(), model);
    std::vector<std::string> names;
    const DatasetFacts facts = piece.samples->facts();
    const std::string input = piece.samples->info().fields.at(0).name;
    ResultColumns columns;
    const int64_t rows = piece.rows_per_sample;
    for (ValueColumn& column : piece.beside) columns.push_back({column.take(first * rows, batch.size() * rows)});
    size_t num_beside = columns.size();
    for (size_t i = 0; i < losses_.size(); ++i) {
      Tensors read = model.loss_inputs(losses_[i], batch, outputs);
      for (at::Tensor& tensor : read) tensor = tensor.defined() ? tensor.cpu() : tensor;
      if (i == outcomes_.size()) {
        outcomes_.push_back(make_outcome(inputs_of(losses_[i], read, rows, batch)));
        if (outcomes_.size() == losses_.size()) require_effects();
      }
      if (outcomes_[i]->wants_names() && names.empty()) {
        for (int64_t row = 0; row < batch.size(); ++row) names.push_back(facts.place(first + row, input));
      }
      ResultColumns own = outcomes_[i]->columns({batch, read, names});
      columns.insert(columns.end(), std::make_move_iterator(own.begin()), std::make_move_iterator(own.end()));
    }
    keep_apart(columns, num_beside);
    count_not_finite(columns, num_beside);
    writer_->write(columns);
    point_.num_written += batch.size() * rows;
  }

  OutcomeInputs inputs_of(size_t loss, const Tensors& read, int64_t rows_per_sample, const Batch& batch) const {
    const Component<LossKind>& component = run_.recipe().loss[loss];
    OutcomeInputs inputs{run_.recipe(), run_.contract(), options_.outcome};
    inputs.target = run_.contract().field(run_.model().loss_target(loss));
    inputs.loss = component.facts({});
    inputs.loss_type = component.type;
    inputs.is_logarithm =
        inputs.loss.target == LossFacts::Target::kCounts && component.attributes.value("log_input", false);
    inputs.quantiles = component.attributes.value("quantiles", std::vector<double>());
    inputs.class_dim = component.attributes.value("class_dim", int64_t{1});
    inputs.has_words =
        std::ranges::any_of(batch.fields(), [](const Batch::Field& field) { return field.name == kWordIds; });
    inputs.outputs = read;
    inputs.rows_per_sample = rows_per_sample;
    inputs.roots = local_.paths;
    return inputs;
  }

  /// A column of the data that is called like one of the predictions is left out: the file has it already.
  void keep_apart(ResultColumns& columns, size_t& num_beside) {
    std::set<std::string> names;
    for (size_t i = num_beside; i < columns.size(); ++i) {
      for (int number = 2; !names.insert(columns[i].name).second; ++number) {
        columns[i].name += " " + std::to_string(number);  // of another loss
      }
    }
    std::vector<std::string> left_out;
    for (size_t i = num_beside; i-- > 0;) {
      if (!names.contains(columns[i].name)) continue;
      left_out.push_back(columns[i].name);
      columns.erase(columns.begin() + static_cast<std::ptrdiff_t>(i));
      --num_beside;
    }
    if (left_out.empty() || says_left_out_) return;
    says_left_out_ = true;
    add_notes({"the column " + join(left_out) + " is not passed on: the predictions have one of that name"});
  }

  void count_not_finite(const ResultColumns& columns, size_t num_beside) {
    for (size_t i = num_beside; i < columns.size(); ++i) {
      const auto* numbers = std::get_if<at::Tensor>(&columns[i].values);
      if (!numbers || !numbers->is_floating_point()) continue;
      summary_.num_not_finite += numbers->numel() - at::isfinite(*numbers).sum().item<int64_t>();
    }
  }

  TrainedRun& run_;
  const PredictOptions& options_;
  Progress progress_;
  PredictionWriter* writer_;
  LocalData local_;
  std::vector<size_t> losses_;
  std::vector<std::unique_ptr<Outcome>> outcomes_;  // of these
  PredictionPoint point_;
  Clock::time_point marked_;
  PredictSummary summary_;
  bool says_left_out_ = false;
};

}  // namespace

PredictSummary predict(TrainedRun& run, const PredictOptions& options) { return Prediction(run, options, nullptr)(); }

PredictSummary predict(TrainedRun& run, const PredictOptions& options, PredictionWriter& writer) {
  return Prediction(run, options, &writer)();
}

}  // namespace trainrun
