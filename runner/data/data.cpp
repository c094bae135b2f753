#include "runner/data/data.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <array>
#include <utility>

#include "registry/data/sample_lengths.h"
#include "registry/data/views.h"
#include "registry/kinds/build.h"
#include "registry/kinds/dataset_facts.h"
#include "runner/base/arithmetic.h"
#include "runner/data/checked_dataset.h"
#include "runner/data/length_order.h"
#include "runner/data/pixels.h"

namespace trainrun {

using nlohmann::json;

namespace {

constexpr std::array kLists = {"train_transforms", "eval_transforms", "transforms"};

/// Builds transforms for the fields that reach them; `info` becomes what they leave.
std::vector<std::shared_ptr<Transform>> build_list(const std::vector<Component<TransformKind>>& components,
                                                   DatasetInfo& info) {
  std::vector<std::shared_ptr<Transform>> transforms;
  if (auto floats = pixels_to_floats(info)) transforms.push_back(std::move(floats));
  for (const Component<TransformKind>& component : components) {
    transforms.push_back(build_at_place(component, {info}));
    transforms.back()->describe(info);
  }
  return transforms;
}

at::Tensor all_samples(const Dataset& data) { return at::arange(data.size(), at::kLong); }

/// The field of classes that a sampler goes by: [N] int64.
at::Tensor classes_of(const Dataset& data, const SamplerSection& sampler) {
  const std::string field = sampler.field.value_or(data.info().target);
  const at::Tensor classes = data.column(field);
  const bool fits = classes.dim() == 1 && classes.scalar_type() == at::kLong;
  if (!fits || (classes.numel() > 0 && classes.min().item<int64_t>() < 0)) {
    throw DataError("sampler " + sampler.type + ": field '" + field +
                    "' does not hold a class, an integer from 0, for each sample");
  }
  return classes;
}

/// How often each sample is drawn.
at::Tensor weights_of(const Dataset& data, const SamplerSection& sampler) {
  if (const auto* name = std::get_if<std::string>(&sampler.weights); name && *name != "balanced") {
    const at::Tensor weights = data.column(*name).to(at::kDouble).flatten();
    const bool fits = weights.numel() == data.size() && weights.isfinite().all().item<bool>() &&
                      weights.ge(0).all().item<bool>() && weights.sum().item<double>() > 0;
    if (!fits) {
      throw DataError("sampler WeightedRandom: '" + *name +
                      "' does not hold a weight >= 0 for each sample, with some above 0");
    }
    return weights;
  }
  const at::Tensor classes = classes_of(data, sampler);
  if (std::holds_alternative<std::string>(sampler.weights)) {
    return classes.bincount().to(at::kDouble).reciprocal().index_select(0, classes);
  }
  const auto& list = std::get<std::vector<double>>(sampler.weights);
  const auto most = classes.max().item<int64_t>();
  if (most >= static_cast<int64_t>(list.size())) {
    throw DataError("sampler WeightedRandom: weights has " + std::to_string(list.size()) +
                    " numbers, there is a class " + std::to_string(most));
  }
  const at::Tensor weights = at::tensor(list, at::kDouble).index_select(0, classes);
  if (weights.sum().item<double>() == 0) {
    throw DataError("sampler WeightedRandom: no sample is of a class whose weight is above 0, so none can be drawn");
  }
  return weights;
}

/// Throws where PyTorch's multinomial, which draws, cannot.
void require_drawable(const at::Tensor& weights) {
  constexpr int64_t kMost = int64_t{1} << 24;
  if (!weights.defined() || weights.numel() <= kMost) return;
  throw DataError("among " + std::to_string(weights.numel()) + " samples none can be drawn by weight, at most among " +
                  std::to_string(kMost));
}

/// ((x - a) / s - b) / t is (x - (a + s b)) / (s t). Nothing where they go along different dimensions.
std::optional<Scaling> one_after_other(const Scaling& first, const Scaling& then) {
  const bool fits = first.scale.size() == 1 || then.scale.size() == 1 || first.dims_behind == then.dims_behind;
  if (!fits) return std::nullopt;
  Scaling all;
  all.dims_behind = first.scale.size() > 1 ? first.dims_behind : then.dims_behind;
  const size_t count = std::max(first.scale.size(), then.scale.size());
  const auto at = [](const std::vector<double>& numbers, size_t i) { return numbers[numbers.size() == 1 ? 0 : i]; };
  for (size_t i = 0; i < count; ++i) {
    all.scale.push_back(at(first.scale, i) * at(then.scale, i));
    all.offset.push_back(at(first.offset, i) + at(first.scale, i) * at(then.offset, i));
  }
  return all;
}

bool is_evaluated(const Recipe& recipe, const Component<DatasetKind>& dataset) {
  if (!recipe.dataset.eval) return false;
  const auto& sets = recipe.dataset.eval->sets;
  return std::any_of(sets.begin(), sets.end(), [&](const EvalSets::One& one) { return &one.data == &dataset; });
}

}  // namespace

std::unique_ptr<Dataset> open_data(const Component<DatasetKind>& dataset, const Recipe& recipe) {
  DatasetInputs inputs;
  inputs.seed = static_cast<uint64_t>(recipe.seed);
  auto data = std::make_unique<CheckedDataset>(build_at_place(dataset, inputs));
  if (is_evaluated(recipe, dataset)) {
    data->set_inferred(recipe.dataset.train.build(inputs)->facts().inferred());
  }
  data->open();
  try {
    require_countable(data->size());
  } catch (const DataError& error) {
    throw RecipeError({{dataset.place, dataset.path, error.what()}});
  }
  return data;
}

void share_learnt(Dataset& data, const json& learnt) {
  if (learnt.is_null()) {
    data.learn(all_samples(data));
  } else {
    data.set_learnt(learnt);
  }
}

std::vector<std::string> notes_of_all(const std::vector<std::pair<std::string, const Dataset*>>& sets) {
  std::vector<std::pair<std::string, std::vector<std::string>>> notes;  // each with the names of those that say it
  for (const auto& [name, data] : sets) {
    for (const std::string& note : data->facts().notes()) {
      const auto is_same = [&](const auto& other) { return other.first == note; };
      auto said = std::find_if(notes.begin(), notes.end(), is_same);
      if (said == notes.end()) said = notes.insert(said, {note, {}});
      if (said->second.empty() || said->second.back() != name) said->second.push_back(name);
    }
  }
  std::vector<std::string> lines;
  for (const auto& [note, names] : notes) lines.push_back(join(names) + ": " + note);
  return lines;
}

DataTransforms::DataTransforms(const Recipe& recipe, const DatasetInfo* train, const std::vector<DatasetInfo>& eval)
    : eval_(std::max<size_t>(eval.size(), 1)) {
  const DatasetSection& section = recipe.dataset;
  DatasetInfo info;
  for (size_t i = eval.size(); i-- > 0;) {
    info = eval[i];
    eval_[i] = build_list(section.eval_transforms, info);
  }
  if (train) {
    info = *train;
    train_ = build_list(section.train_transforms, info);
  }
  common_ = build_list(section.transforms, info);
}

DataLoader::Transforms DataTransforms::all(const List& first) const {
  DataLoader::Transforms transforms(first.begin(), first.end());
  transforms.insert(transforms.end(), common_.begin(), common_.end());
  transforms.push_back(float64_to_floats());
  return transforms;
}

void DataTransforms::learn(const Recipe& recipe, const Dataset& train) {
  learn(recipe, train, train_);
  for (const List& list : eval_) learn(recipe, train, list);
}

void DataTransforms::learn(const Recipe& recipe, const Dataset& train, const List& first) {
  List transforms = first;
  transforms.insert(transforms.end(), common_.begin(), common_.end());
  DataLoaderOptions options;
  options.batch_size = recipe.dataloader.batch_size;
  options.num_workers = recipe.dataloader.num_workers;
  options.seed = static_cast<uint64_t>(recipe.seed);
  for (size_t i = 0; i < transforms.size(); ++i) {
    if (!transforms[i]->learns() || !transforms[i]->learnt().is_null()) continue;
    const DataLoader::Transforms before(transforms.begin(), transforms.begin() + static_cast<std::ptrdiff_t>(i));
    const DataLoader loader(train, before, options);
    const auto batches = loader.iterate(0);
    transforms[i]->learn([&] { return batches->next(); });
  }
}

json DataTransforms::learnt() const {
  json state;
  const std::array lists = {&train_, &eval_[0], &common_};  // all of eval_ have learnt the same
  for (size_t list = 0; list < lists.size(); ++list) {
    for (size_t i = 0; i < lists[list]->size(); ++i) {
      json own = (*lists[list])[i]->learnt();
      if (!own.is_null()) state[kLists[list]][std::to_string(i)] = std::move(own);
    }
  }
  return state;
}

std::optional<Scaling> DataTransforms::scaling(const FieldInfo& field) const {
  std::optional<Scaling> all;
  for (const List* list : {&train_, &common_}) {
    for (const auto& transform : *list) {
      const auto* scales = dynamic_cast<const ScalesNumbers*>(transform.get());
      const auto dims = static_cast<int64_t>(field.shape.size());
      const std::optional<Scaling> own = scales ? scales->scaling(field.name, dims) : std::nullopt;
      if (!own) continue;
      all = all ? one_after_other(*all, *own) : *own;
      if (!all) return all;
    }
  }
  return all;
}

void DataTransforms::set_learnt(const json& state) {
  take_back(train_, kLists[0], state);
  for (const List& list : eval_) take_back(list, kLists[1], state);
  take_back(common_, kLists[2], state);
}

void DataTransforms::take_back(const List& list, const char* name, const json& state) {
  for (size_t i = 0; i < list.size(); ++i) {
    Transform& transform = *list[i];
    if (!transform.learns()) continue;
    const std::string index = std::to_string(i);
    const bool known = state.is_object() && state.contains(name) && state[name].contains(index);
    if (!known) throw DataError("the checkpoint does not hold what " + std::string(name) + "[" + index + "] learnt");
    transform.set_learnt(state[name][index]);
  }
}

namespace {

/// Throws RecipeError where the data cannot be ordered by length.
Drawing grouped_by_length(const Recipe& recipe, const Dataset& data, int64_t world_size) {
  const Component<DatasetKind>& train = recipe.dataset.train;
  const auto fail = [&](const std::string& why) {
    throw RecipeError({{train.place, "dataloader.group_by_length", "cannot order " + train.type + ": " + why}});
  };
  if (data.facts().own_order || data.sampling_weights().defined()) fail("it draws its samples itself");
  at::Tensor lengths;
  try {
    lengths = sample_lengths(data);
  } catch (const DataError& error) {
    fail(error.what());
  }
  const int64_t unit = saturating_product(saturating_product(recipe.dataloader.batch_size, world_size),
                                          recipe.training.gradient_accumulation_steps);
  Drawing drawing;
  drawing.order = [lengths, unit = std::min(unit, std::max<int64_t>(lengths.numel(), 1))](
                      uint64_t seed, int64_t epoch) { return length_grouped_order(lengths, unit, seed, epoch); };
  return drawing;
}

}  // namespace

DataLoaderOptions loader_options(const Recipe& recipe, const Dataset* data, bool training, int64_t rank,
                                 int64_t world_size) {
  const DataloaderSection& section = recipe.dataloader;
  DataLoaderOptions options;
  options.batch_size = training ? section.batch_size : section.eval_batch_size.value_or(section.batch_size);
  options.drop_last = training && section.drop_last;
  options.shuffle = training && section.shuffle;
  options.num_workers = section.num_workers;
  options.seed = static_cast<uint64_t>(recipe.seed);
  options.rank = rank;
  options.world_size = world_size;
  options.split = training ? Split::kPad : Split::kEverySampleOnce;
  if (!training) return options;
  const auto sampler = section.chosen_sampler();
  if (section.group_by_length) {
    if (data) options.drawing = grouped_by_length(recipe, *data, world_size);
    return options;
  }
  if (!sampler) {
    if (data && section.shuffle) {
      options.drawing.weights = data->sampling_weights();
      options.drawing.order = data->facts().own_order;
      options.drawing.num_samples = data->facts().num_drawn().value_or(0);
    }
    require_drawable(options.drawing.weights);
    return options;
  }
  options.drawing.num_samples = sampler->num_samples.value_or(0);
  options.drawing.replacement = sampler->replacement;
  if (!data) return options;
  if (sampler->type == "Stratified") {
    options.drawing.strata = classes_of(*data, *sampler);
  } else {
    options.drawing.weights = weights_of(*data, *sampler);
    require_drawable(options.drawing.weights);
  }
  return options;
}

}  // namespace trainrun
