#include "runner/report/run_evaluation.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_set>

#include "registry/kinds/dataset_facts.h"
#include "registry/language/error.h"
#include "registry/language/text_forms.h"
#include "runner/data/data.h"
#include "runner/generate/text_codec.h"
#include "runner/predict/outcome.h"
#include "runner/report/token_measure.h"
#include "runner/train/occasion.h"
#include "runner/train/step_errors.h"

namespace trainrun {
namespace {

constexpr size_t kMostMistakes = 24;
constexpr size_t kMostCurves = 10;   // classes that have a curve
constexpr size_t kMostPoints = 200;  // of a curve
constexpr size_t kMostPairs = 1000;  // of truth and prediction
constexpr size_t kMostForecasts = 4;

/// Reads what a batch's outputs say, and keeps what curves and tables are made of.
class Collector {
 public:
  /// `order`: the numbers of the samples as they come.
  Collector(TrainedRun& run, const Dataset& data, const at::Tensor& order, SetEvaluation& found)
      : run_(run), facts_(data.facts()), order_(order), found_(found), loss_(run.recipe().loss[0].facts({})) {
    const std::string target = run.model().loss_target(0);
    target_ = run.contract().field(target);
    std::unordered_set<std::string> of_texts;
    const auto codec = codec_of_data(run.recipe(), run.contract().dataset);
    for (TokenFields& text : token_fields(data.info(), of_texts)) texts_.emplace_back(std::move(text), codec);
  }

  /// Whether samples of this model can be shown one by one.
  bool fits() const {
    using Target = LossFacts::Target;
    return target_ &&
           (loss_.target == Target::kClasses || loss_.target == Target::kNumbers || loss_.target == Target::kScaled);
  }

  void add(const Batch& batch, const Tensors& outputs) {
    Tensors read = run_.model().loss_inputs(0, batch, outputs);
    for (at::Tensor& tensor : read) tensor = tensor.defined() ? tensor.cpu() : tensor;
    if (!outcome_) begin(read);
    const bool is_of_samples = read.at(0).dim() <= 2 || is_of_numbers();
    if (!is_of_samples) left_out_ = "its output is more than a class of each sample, which is not shown";
    if (is_of_samples && is_of_numbers()) add_numbers(batch, read);
    if (is_of_samples && !is_of_numbers()) add_classes(batch, read);
    first_ += batch.size();
  }

  void finish() {
    found_.samples = first_;
    if (!truths_.empty()) finish_numbers();
    if (!scores_.empty()) finish_classes();
    std::ranges::stable_sort(found_.mistakes, std::greater<>(), &SetEvaluation::Mistake::badness);
  }
  const std::string& left_out() const { return left_out_; }

 private:
  bool is_of_numbers() const { return loss_.learns_numbers(); }

  void begin(const Tensors& read) {
    const Component<LossKind>& component = run_.recipe().loss[0];
    OutcomeInputs inputs{run_.recipe(), run_.contract(), options_};
    inputs.target = target_;
    inputs.loss = loss_;
    inputs.loss_type = component.type;
    inputs.class_dim = component.attributes.value("class_dim", int64_t{1});
    inputs.outputs = read;
    outcome_ = make_outcome(inputs);
  }

  void add_classes(const Batch& batch, const Tensors& read) {
    Tensors probabilities;
    std::vector<std::string> names;
    for (const ResultColumn& column : outcome_->columns({batch, read, {}})) {
      if (column.group != "probabilities") continue;
      probabilities.push_back(std::get<at::Tensor>(column.values).to(at::kDouble));
      names.push_back(column.key);
    }
    if (probabilities.empty()) return;
    names_ = names;
    const at::Tensor scores = at::stack(probabilities, 1);  // [N, C]
    at::Tensor truth = read.at(1);
    has_labels_ = truth.dim() == 2 && truth.size(1) == scores.size(1) && scores.size(1) > 1 &&
                  target_->info.shape.size() == 1 && loss_.of_one != LossFacts::Scores::kNone;
    if (!has_labels_) truth = classes_of(truth);
    if (truth.size(0) != scores.size(0)) {
      left_out_ = "its targets are not a class of each sample";
      return;
    }
    scores_.push_back(scores);
    truths_of_classes_.push_back(truth);
    const at::Tensor bad = has_labels_ ? losses_of_labels(scores, truth) : losses_of_classes(scores, truth);
    for (int64_t row = 0; row < batch.size(); ++row) {
      const auto badness = bad[row].item<double>();
      if (is_wrong(scores[row], truth[row]))
        keep(batch, row, badness, [&](SetEvaluation::Mistake& mistake) {
          mistake.expected = has_labels_ ? labels_text(truth[row].ge(0.5)) : class_name(truth[row].item<int64_t>());
          mistake.said = has_labels_ ? labels_text(scores[row].ge(0.5)) : said_text(scores[row]);
        });
    }
  }

  /// The class of each sample, [N] int64; of probabilities for each class, the most probable.
  static at::Tensor classes_of(const at::Tensor& truth) {
    if (truth.dim() == 2 && truth.size(1) > 1) return truth.argmax(1);
    return truth.to(at::kDouble).round().to(at::kLong).reshape({-1});
  }
  static at::Tensor losses_of_classes(const at::Tensor& scores, const at::Tensor& truth) {
    const at::Tensor known = truth.clamp(0, scores.size(1) - 1).unsqueeze(1);
    return -scores.gather(1, known).squeeze(1).clamp_min(1e-300).log();
  }
  static at::Tensor losses_of_labels(const at::Tensor& scores, const at::Tensor& truth) {
    const at::Tensor right = (scores + truth.to(at::kDouble) - 1).abs();  // how probable what is there was
    return -right.clamp_min(1e-300).log().sum(1);
  }
  bool is_wrong(const at::Tensor& scores, const at::Tensor& truth) const {
    if (has_labels_) return scores.ge(0.5).ne(truth.ge(0.5)).any().item<bool>();
    const auto expected = truth.item<int64_t>();
    return expected >= 0 && scores.argmax().item<int64_t>() != expected;
  }

  /// Whether classes are called otherwise than by their numbers.
  bool has_names() const {
    for (size_t i = 0; i < names_.size(); ++i) {
      if (names_[i] != std::to_string(i)) return true;
    }
    return false;
  }
  std::string class_name(int64_t label) const {
    const bool is_known = label >= 0 && label < static_cast<int64_t>(names_.size());
    return is_known ? names_[static_cast<size_t>(label)] : std::to_string(label);
  }
  std::string said_text(const at::Tensor& scores) const {
    const auto label = scores.argmax().item<int64_t>();
    return class_name(label) + " (" + in_figures(100 * scores[label].item<double>(), 3) + " %)";
  }
  std::string labels_text(const at::Tensor& labels) const {
    std::vector<std::string> there;
    for (int64_t i = 0; i < labels.numel(); ++i) {
      if (labels[i].item<bool>()) there.push_back(class_name(i));
    }
    return there.empty() ? "none" : join(there);
  }

  void add_numbers(const Batch& batch, const Tensors& read) {
    const at::Tensor predicted = target_->in_units(read.at(0)), truth = target_->in_units(read.at(1));
    if (predicted.numel() != truth.numel()) {
      left_out_ = "its output and its target are of other sizes";
      return;
    }
    const int64_t rows = batch.size();
    predictions_.push_back(predicted.reshape({rows, -1}));
    truths_.push_back(truth.reshape({rows, -1}));
    const at::Tensor errors = (predictions_.back() - truths_.back()).abs();
    for (int64_t row = 0; row < rows; ++row) {
      if (errors.size(1) > 1 && found_.forecasts.size() < kMostForecasts && is_series()) add_forecast(batch, row);
      keep(batch, row, errors[row].mean().item<double>(), [&](SetEvaluation::Mistake& mistake) {
        mistake.expected = numbers_text(truths_.back()[row]);
        mistake.said = numbers_text(predictions_.back()[row]);
      });
    }
  }

  /// Whether the numbers of a target are the steps of a window, which are called "1", "2", ….
  bool is_series() const {
    const std::vector<std::string>& names = target_->names_within;
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i] != std::to_string(i + 1)) return false;
    }
    return names.size() > 1 && target_->info.shape.size() == 1;
  }

  void add_forecast(const Batch& batch, int64_t row) {
    SetEvaluation::Forecast forecast;
    forecast.place = place(batch, row);
    for (int64_t i = 0; i < truths_.back().size(1); ++i) {
      forecast.truth.push_back(truths_.back()[row][i].item<double>());
      forecast.predicted.push_back(predictions_.back()[row][i].item<double>());
    }
    found_.forecasts.push_back(std::move(forecast));
  }

  static std::string numbers_text(const at::Tensor& numbers) {
    constexpr int64_t kMost = 8;
    std::vector<std::string> words;
    for (int64_t i = 0; i < std::min(numbers.numel(), kMost); ++i) {
      words.push_back(in_figures(numbers[i].item<double>(), 5));
    }
    return join(words) + (numbers.numel() > kMost ? ", …" : "");
  }

  std::string place(const Batch& batch, int64_t row) const {
    return facts_.place(order_[first_ + row].item<int64_t>(), batch.fields().at(0).name);
  }

  /// Keeps a sample among the worst, if it is one of them.
  template <class Describe>
  void keep(const Batch& batch, int64_t row, double badness, const Describe& describe) {
    std::vector<SetEvaluation::Mistake>& mistakes = found_.mistakes;
    if (std::isnan(badness)) badness = INFINITY;
    const auto least = std::ranges::min_element(mistakes, {}, &SetEvaluation::Mistake::badness);
    if (mistakes.size() == kMostMistakes && least->badness >= badness) return;
    SetEvaluation::Mistake mistake;
    mistake.place = place(batch, row);
    mistake.badness = badness;
    describe(mistake);
    const Batch::Field& input = batch.fields().at(0);
    if (texts_.empty()) mistake.input = input.tensor[row].detach().cpu().clone();
    if (texts_.empty()) mistake.columns = facts_.field(input.name).number_names();
    for (const TokenMeasure& text : texts_) mistake.rows.push_back(text.row(batch, row));
    if (mistakes.size() == kMostMistakes) {
      *least = std::move(mistake);
    } else {
      mistakes.push_back(std::move(mistake));
    }
  }

  void finish_numbers() {
    const at::Tensor truth = at::cat(truths_), predicted = at::cat(predictions_);  // [N, K]
    const std::vector<std::string> own = names_of_numbers(*target_, truth.size(1));
    const bool is_one = is_series() || own.size() != static_cast<size_t>(truth.size(1));
    const int64_t groups = is_one ? 1 : truth.size(1);
    for (int64_t i = 0; i < groups; ++i) {
      const at::Tensor x = (is_one ? truth : truth.select(1, i)).reshape({-1}).contiguous();
      const at::Tensor y = (is_one ? predicted : predicted.select(1, i)).reshape({-1}).contiguous();
      SetEvaluation::Numbers numbers;
      numbers.name = is_one ? target_->title() : own[static_cast<size_t>(i)];
      const at::Tensor errors = y - x;
      numbers.rmse = errors.square().mean().sqrt().item<double>();
      numbers.mae = errors.abs().mean().item<double>();
      numbers.r2 = 1 - errors.square().sum().item<double>() / (x - x.mean()).square().sum().item<double>();
      std::vector<std::pair<double, double>> pairs;
      for (int64_t k = 0; k < x.numel(); ++k) {
        pairs.emplace_back(x.const_data_ptr<double>()[k], y.const_data_ptr<double>()[k]);
      }
      numbers.pairs = thinned(pairs, kMostPairs);
      found_.drawn = static_cast<int64_t>(numbers.pairs.size());
      found_.numbers.push_back(std::move(numbers));
    }
  }

  void finish_classes() {
    const at::Tensor scores = at::cat(scores_).contiguous(), truth = at::cat(truths_of_classes_).contiguous();
    const int64_t count = scores.size(0), classes = scores.size(1);
    ClassReport report;
    report.prefix = found_.prefix;
    report.classes = static_cast<size_t>(classes);
    if (has_names()) report.names = names_;
    report.has_labels = has_labels_;
    report.counts.assign(static_cast<size_t>(has_labels_ ? 4 * classes : classes * classes), 0);
    Scored confidences;
    for (int64_t i = 0; i < count; ++i) {
      if (has_labels_) {
        count_labels(report, scores[i], truth[i]);
      } else {
        count_class(report, scores[i], truth[i].item<int64_t>(), confidences);
      }
    }
    for (const size_t label : curved(report)) add_curves(label, scores, truth, confidences);
    if (!confidences.empty()) found_.calibration = calibration_curve(confidences);
    found_.classes = std::move(report);
  }

  static void count_labels(ClassReport& report, const at::Tensor& scores, const at::Tensor& truth) {
    for (size_t k = 0; k < report.classes; ++k) {
      const auto at = static_cast<int64_t>(k);
      const bool is_there = truth[at].item<double>() >= 0.5, is_said = scores[at].item<double>() >= 0.5;
      ++report.counts[4 * k + (is_there ? 2 : 0) + (is_said ? 1 : 0)];
    }
  }

  static void count_class(ClassReport& report, const at::Tensor& scores, int64_t truth, Scored& confidences) {
    if (truth < 0 || truth >= static_cast<int64_t>(report.classes)) return;  // ignored
    const auto said = scores.argmax().item<int64_t>();
    ++report.counts[static_cast<size_t>(truth) * report.classes + static_cast<size_t>(said)];
    confidences.emplace_back(scores[said].item<double>(), said == truth);
  }

  /// The classes with the most samples; of two the second, which says all.
  static std::vector<size_t> curved(const ClassReport& report) {
    if (report.classes == 2 && !report.has_labels) return {1};
    std::vector<size_t> order(report.classes);
    std::iota(order.begin(), order.end(), size_t{0});
    if (order.size() <= kMostCurves) return order;
    std::ranges::stable_sort(order, std::greater<>(), [&](size_t i) { return report.row(i).samples; });
    order.resize(kMostCurves);
    std::ranges::sort(order);
    return order;
  }

  void add_curves(size_t label, const at::Tensor& scores, const at::Tensor& truth, Scored& confidences) {
    Scored scored;
    for (int64_t i = 0; i < scores.size(0); ++i) {
      const auto at = static_cast<int64_t>(label);
      if (!has_labels_ && truth[i].item<int64_t>() < 0) continue;
      const bool is_there = has_labels_ ? truth[i][at].item<double>() >= 0.5 : truth[i].item<int64_t>() == at;
      scored.emplace_back(scores[i][at].item<double>(), is_there);
    }
    if (has_labels_) confidences.insert(confidences.end(), scored.begin(), scored.end());
    const auto add = [&](std::vector<SetEvaluation::NamedCurve>& curves, ScoreCurve curve) {
      curve.points = thinned(curve.points, kMostPoints);
      if (!curve.points.empty()) curves.push_back({names_[label], std::move(curve)});
    };
    add(found_.roc, roc_curve(scored));
    add(found_.precision_recall, precision_recall_curve(scored));
  }

  TrainedRun& run_;
  DatasetFacts facts_;
  at::Tensor order_;
  SetEvaluation& found_;
  LossFacts loss_;
  const FieldContract* target_ = nullptr;
  OutcomeOptions options_;
  std::unique_ptr<Outcome> outcome_;
  std::vector<TokenMeasure> texts_;
  std::vector<std::string> names_;
  bool has_labels_ = false;
  int64_t first_ = 0;  // the number of the batch's first sample
  Tensors scores_, truths_of_classes_, predictions_, truths_;
  std::string left_out_;
};

}  // namespace

RunEvaluation evaluate_samples(TrainedRun& run) {
  const Recipe& recipe = run.recipe();
  if (!recipe.dataset.eval) throw Error(run.recipe_path() + ": the recipe has no dataset.eval to evaluate on");
  RunEvaluation evaluation;
  evaluation.checkpoint = run.checkpoint();
  std::vector<std::unique_ptr<Dataset>> data;
  std::vector<DatasetInfo> infos;
  for (const EvalSets::One& set : recipe.dataset.eval->sets) {
    data.push_back(open_data(set.data, recipe));
    run.contract().read(*data.back(), set.path());
    infos.push_back(data.back()->info());
  }
  DataTransforms transforms(recipe, nullptr, infos);
  transforms.set_learnt(run.contract().transforms);
  const at::NoGradGuard no_gradients;
  run.model().train(false);
  const EvaluationScope scope(run.callbacks());
  for (size_t i = 0; i < data.size(); ++i) {
    SetEvaluation found;
    found.prefix = recipe.dataset.eval->sets[i].prefix();
    const DataLoaderOptions options = loader_options(recipe, data[i].get(), false);
    const Sampler sampler(data[i]->size(), {options.shuffle, options.seed, options.split, 0, 1, options.drawing});
    Collector collector(run, *data[i], sampler.indices(0), found);
    if (!collector.fits()) {
      evaluation.notes.push_back(found.prefix + ": a model that is trained by " + recipe.loss[0].type +
                                 " has no class and no number of each sample to show");
      continue;
    }
    const DataLoader loader(*data[i], transforms.evaluation(i), options, run.device());
    const auto batches = loader.iterate(0);
    for (Occasion occasion{Occasion::Phase::kEvaluation, 0, 0, 0};; ++occasion.batch) {
      const auto batch = named("making a batch", occasion, [&] { return batches->next(); });
      if (!batch) break;
      named("the evaluation", occasion, [&] {
        collector.add(*batch, scope.predict(*batch, [&](const Batch& given) { return run.model().forward(given); }));
      });
    }
    collector.finish();
    if (!collector.left_out().empty()) evaluation.notes.push_back(found.prefix + ": " + collector.left_out());
    evaluation.sets.push_back(std::move(found));
  }
  for (const std::string& note : run.notes()) evaluation.notes.push_back(note);
  return evaluation;
}

}  // namespace trainrun
