#include "runner/report/data_survey.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bincount.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "registry/data/sample_lengths.h"
#include "registry/kinds/dataset_facts.h"
#include "registry/language/text_forms.h"
#include "runner/data/data.h"
#include "runner/data/data_contract.h"
#include "runner/data/length_order.h"
#include "runner/generate/chat_format.h"
#include "runner/model/index_checks.h"
#include "runner/model/model.h"
#include "runner/report/data_measure.h"
#include "runner/report/data_warnings.h"
#include "runner/report/label_copies.h"
#include "runner/report/token_measure.h"

namespace trainrun {
namespace {

/// One set of data, open, and how its batches are made.
struct OpenSet {
  std::string name;
  const Dataset* data;
  DataLoader::Transforms transforms;
  DataLoaderOptions options;
  DatasetInfo info;                        // as the fields reach the model
  std::shared_ptr<const TextCodec> codec;  // of its texts; null: there are none, or only their tokens' numbers
  std::vector<int64_t> turn_ends = {};     // of conversations that are learnt
};

/// How a target looks in words: the class's name, several with their shares, or numbers.
std::string label_text(const at::Tensor& target, const std::vector<std::string>& names) {
  const auto name_of = [&](int64_t label) {
    const bool is_known = label >= 0 && label < static_cast<int64_t>(names.size());
    return is_known ? names[static_cast<size_t>(label)] : std::to_string(label);
  };
  if (target.dim() == 0 && !at::isFloatingType(target.scalar_type())) return name_of(target.item<int64_t>());
  constexpr int64_t kMost = 100;
  constexpr double kLeastShare = 0.005;
  if (target.dim() > 1 || target.numel() > kMost) return "";
  const at::Tensor numbers = target.to(at::kDouble).reshape({-1});
  if (numbers.numel() == 1) return in_figures(numbers[0].item<double>(), 4);
  std::vector<std::string> parts;
  for (int64_t i = 0; i < numbers.numel(); ++i) {
    const auto number = numbers[i].item<double>();
    if (std::abs(number) >= kLeastShare) parts.push_back(name_of(i) + " " + in_figures(number, 4));
  }
  return join(parts);
}

/// The target as the data set has it for all samples, where that costs no decoding; undefined where it does.
at::Tensor all_targets(const OpenSet& set) {
  constexpr double kMost = 1e8;  // numbers
  const DatasetInfo info = set.data->info();
  const FieldInfo* target = info.find(info.target);
  auto count = static_cast<double>(set.data->size());
  for (const int64_t size : target ? target->shape : std::vector<int64_t>()) count *= static_cast<double>(size);
  if (count > kMost) return {};
  try {
    return set.data->column(set.data->info().target);
  } catch (const Error&) {  // not kept in memory
    return {};
  }
}

/// Counts classes, `classes` of them.
class ClassCounts {
 public:
  ClassCounts(int64_t classes, std::optional<int64_t> ignored)
      : counts_(static_cast<size_t>(classes)), ignored_(ignored) {}

  void add(const at::Tensor& labels) {
    if (at::isFloatingType(labels.scalar_type()) || labels.numel() == 0) return;
    const auto size = static_cast<int64_t>(counts_.size());
    at::Tensor counted = labels.to(at::kLong).flatten();
    at::Tensor mask = counted.ge(0).logical_and_(counted.lt(size));
    if (ignored_) mask = mask.logical_and_(counted.ne(*ignored_));
    counted = counted.masked_select(mask).bincount({}, size);
    for (size_t i = 0; i < counts_.size(); ++i) counts_[i] += counted[static_cast<int64_t>(i)].item<int64_t>();
  }
  const std::vector<int64_t>& counts() const { return counts_; }

 private:
  std::vector<int64_t> counts_;
  std::optional<int64_t> ignored_;
};

/// The field of classes that the loss reads, and how many it may hold; what the data set says where no loss does.
std::optional<IndexRange> label_range(const OpenSet& set, const std::vector<IndexUse>& uses) {
  for (const IndexUse& use : uses) {
    if (use.is_label && use.field == set.info.target) return use.range;
  }
  const FieldInfo* target = set.info.find(set.info.target);
  if (!target || !target->num_classes) return std::nullopt;
  return IndexRange{0, *target->num_classes};
}

/// Of training data; for one process, as all else that is surveyed.
std::optional<SurveyedSet::Grouping> grouping_of(const Recipe& recipe, const Dataset& data) {
  constexpr double kMuch = 0.05;
  const bool is_on = recipe.dataloader.group_by_length;
  if (!is_on && (!recipe.dataloader.shuffle || recipe.dataloader.sampler)) return std::nullopt;
  Recipe other = recipe;
  other.dataloader.group_by_length = !is_on;
  SurveyedSet::Grouping found;
  found.is_on = is_on;
  try {
    const at::Tensor lengths = sample_lengths(data);
    for (const Recipe* one : std::array<const Recipe*, 2>{&recipe, &other}) {
      const DataLoaderOptions options = loader_options(*one, &data, true);
      const Sampler sampler(data.size(), {options.shuffle, options.seed, options.split, 0, 1, options.drawing});
      double& share = one->dataloader.group_by_length ? found.grouped : found.shuffled;
      share = padding_share(lengths, sampler.indices(0), options.batch_size, 1);
    }
  } catch (const Error&) {  // data that are not filled up, or that have an order of their own
    return std::nullopt;
  }
  const bool tells = is_on || found.shuffled - found.grouped >= kMuch;
  return tells ? std::optional(found) : std::nullopt;
}

class Surveyor {
 public:
  Surveyor(const OpenSet& set, const DataSurveyOptions& options, const std::vector<IndexUse>& uses)
      : set_(set), options_(options), names_(set.data->facts().field(set.data->info().target).class_names) {
    found_.name = set.name;
    found_.samples = set.data->size();
    const auto labels = label_range(set, uses);
    std::unordered_set<std::string> of_texts;
    for (TokenFields& text : token_fields(set.info, of_texts)) {
      if (text.labels == set.info.target && labels && labels->ignored) text.ignore_index = *labels->ignored;
      texts_.emplace_back(std::move(text), set.codec, set.turn_ends);
    }
    for (const FieldInfo& field : set.info.fields) {
      if (of_texts.contains(field.name)) continue;
      if (field.name != set.info.target)
        measures_.emplace_back(field, set.data->facts().field(field.name).number_names());
    }
    targets_are_tokens_ = of_texts.contains(set.info.target);
    const bool has_classes = labels && labels->below <= kMostClasses && !targets_are_tokens_;
    if (has_classes) counts_.emplace(labels->below, labels->ignored);
  }

  SurveyedSet survey(DataWarnings& warnings) {
    const at::Tensor targets = counts_ ? all_targets(set_) : at::Tensor();
    const bool counts_all = targets.defined() && !at::isFloatingType(targets.scalar_type());
    if (counts_ && counts_all) counts_->add(targets);
    const DataLoader loader(*set_.data, set_.transforms, set_.options);
    const Sampler sampler(set_.data->size(),
                          {set_.options.shuffle, set_.options.seed, set_.options.split, 0, 1, set_.options.drawing});
    const at::Tensor order = sampler.indices(0);
    const auto batches = loader.iterate(0);
    while (found_.measured < options_.measured) {
      const auto batch = batches->next();
      if (!batch) break;
      add(*batch, order, !counts_all);
    }
    finish();
    for (const FieldMeasure& measure : measures_) warnings.add_blank(found_, measure.blank());
    warnings.add(found_);
    warnings.add_copies(found_.name, copies_.names([&](const std::string& field) {
      return set_.data->facts().field(field).number_names();
    }));
    for (const TokenMeasure& text : texts_) {
      for (const std::string& warning : text.warnings()) warnings.add_text(found_.name + ": " + warning);
    }
    return std::move(found_);
  }

 private:
  static constexpr int64_t kMostClasses = 100'000;

  void add(const Batch& batch, const at::Tensor& order, bool count) {
    for (FieldMeasure& measure : measures_) measure.add(batch);
    if (set_.name == "train") copies_.add(batch, set_.info.target);
    for (TokenMeasure& text : texts_) text.add(batch);
    const bool has_target = !set_.info.target.empty();
    const at::Tensor target = has_target ? batch.at(set_.info.target) : at::Tensor();
    if (counts_ && count) counts_->add(target);
    for (int64_t row = 0; row < batch.size(); ++row) {
      if (static_cast<int64_t>(found_.shown.size()) == options_.shown) break;
      SurveyedSet::Sample sample;
      sample.place = set_.data->facts().place(order[found_.measured + row].item<int64_t>(), set_.info.fields[0].name);
      if (has_target && !targets_are_tokens_) sample.label = label_text(target[row], names_);
      if (texts_.empty()) sample.input = batch.at(set_.info.fields[0].name)[row].clone();
      for (const TokenMeasure& text : texts_) sample.rows.push_back(text.row(batch, row));
      found_.shown.push_back(std::move(sample));
    }
    found_.measured += batch.size();
  }

  void finish() {
    for (const FieldMeasure& measure : measures_) {
      for (SurveyedSet::Column& column : measure.columns()) found_.columns.push_back(std::move(column));
    }
    for (const TokenMeasure& text : texts_) found_.tokens.push_back(text.found());
    if (!counts_) return;
    const FieldInfo* target = set_.info.find(set_.info.target);
    found_.counted = target && target->shape.empty() ? "samples" : "pixels";
    for (size_t i = 0; i < counts_->counts().size(); ++i) {
      found_.classes.push_back({i < names_.size() ? names_[i] : std::to_string(i), counts_->counts()[i]});
    }
  }

  const OpenSet& set_;
  const DataSurveyOptions& options_;
  std::vector<std::string> names_;  // of the classes
  std::vector<FieldMeasure> measures_;
  std::vector<TokenMeasure> texts_;
  bool targets_are_tokens_ = false;
  std::optional<ClassCounts> counts_;
  LabelCopies copies_;
  SurveyedSet found_;
};

/// So many of the samples, evenly spread.
std::vector<int64_t> spread_samples(int64_t size, int64_t most) {
  std::vector<int64_t> indices(static_cast<size_t>(std::min(size, most)));
  for (size_t i = 0; i < indices.size(); ++i) {
    indices[i] =
        static_cast<int64_t>(static_cast<double>(i) * static_cast<double>(size) / static_cast<double>(indices.size()));
  }
  return indices;
}

/// Labels and indices that the model cannot use.
void check_range(const OpenSet& set, const std::vector<IndexUse>& uses, DataWarnings& warnings) {
  for (const IndexUse& use : uses) {
    if (use.field != set.data->info().target) continue;
    const at::Tensor targets = all_targets(set);
    if (!targets.defined()) continue;
    try {
      check_values(use, *set.data, targets, {});
    } catch (const DataError& error) {
      warnings.add_text(set.name + ": " + error.what());
    }
  }
}

}  // namespace

DataSurvey survey_data(const LoadedRecipe& loaded, const DataSurveyOptions& options) {
  const Recipe& recipe = loaded.recipe;
  std::vector<std::unique_ptr<Dataset>> data;
  data.push_back(open_data(recipe.dataset.train, recipe));
  share_learnt(*data[0], nullptr);
  const DataContract contract = DataContract::of(*data[0], nullptr);
  const std::vector<EvalSets::One> none;
  const auto& eval = recipe.dataset.eval ? recipe.dataset.eval->sets : none;
  std::vector<DatasetInfo> eval_infos;
  for (const EvalSets::One& one : eval) {
    data.push_back(open_data(one.data, recipe));
    contract.read(*data.back(), one.path());
    eval_infos.push_back(data.back()->info());
  }
  const DatasetInfo train_info = data[0]->info();
  DataTransforms transforms(recipe, &train_info, eval_infos);
  transforms.learn(recipe, *data[0]);
  const std::shared_ptr<const TextCodec> codec = codec_of_data(recipe, data[0]->learnt());
  std::vector<OpenSet> sets = {{"train", data[0].get(), transforms.training(),
                                loader_options(recipe, data[0].get(), true), training_info(recipe), codec,
                                turn_ends_of(recipe)}};
  for (size_t i = 0; i < eval.size(); ++i) {
    sets.push_back({eval[i].prefix(),
                    data[i + 1].get(),
                    transforms.evaluation(i),
                    loader_options(recipe, data[i + 1].get(), false),
                    evaluation_info(recipe, i),
                    codec,
                    {}});
  }
  const std::unique_ptr<Model> model = plan_model(recipe);
  DataSurvey survey;
  survey.name = recipe.name;
  survey.path = loaded.path;
  survey.contract = DataContract::of(*data[0], &transforms).lines();
  DataWarnings warnings;
  std::vector<std::pair<std::string, const Dataset*>> named;
  for (const OpenSet& set : sets) named.emplace_back(set.name, set.data);
  for (std::string& note : notes_of_all(named)) warnings.add_text(std::move(note));
  for (OpenSet& set : sets) {
    set.options.drop_last = false;
    const std::vector<IndexUse> uses = index_uses(recipe, model->graph(), set.info);
    check_range(set, uses, warnings);
    survey.sets.push_back(Surveyor(set, options, uses).survey(warnings));
    if (&set == &sets[0]) survey.sets[0].grouping = grouping_of(recipe, *set.data);
    const std::vector<int64_t> compared = spread_samples(set.data->size(), options.compared);
    warnings.add_contents(set.name, *set.data, compared);
  }
  survey.warnings = warnings.texts();
  survey.leaks = warnings.leaks();
  return survey;
}

}  // namespace trainrun
