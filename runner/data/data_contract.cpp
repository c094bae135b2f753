#include "runner/data/data_contract.h"

#include "registry/kinds/dataset_facts.h"
#include "registry/kinds/layer_shapes.h"
#include "registry/language/error.h"
#include "registry/language/text_forms.h"
#include "runner/base/torch_versions.h"
#include "runner/data/data.h"
#include "runner/recipe/recipe.h"

namespace trainrun {

using nlohmann::json;

namespace {

using Texts = std::vector<std::string>;

std::string shown(const Texts& names) {
  constexpr size_t kMost = 20;
  return join_first(names, kMost, LeftOut::kCount);
}

json json_of(const FieldContract& field) {
  json own = {{"name", field.info.name}, {"dtype", at::toString(field.info.dtype)}, {"shape", field.info.shape}};
  if (field.info.num_classes) own["num_classes"] = *field.info.num_classes;
  if (!field.called.empty()) own["called"] = field.called;
  if (!field.palette.empty()) own["palette"] = field.palette;
  if (field.scaling) {
    own["scaling"] = {{"scale", field.scaling->scale}, {"offset", field.scaling->offset}};
    if (field.scaling->dims_behind > 0) own["scaling"]["dims_behind"] = field.scaling->dims_behind;
  }
  return own;
}

at::ScalarType dtype_named(const std::string& name) {
  for (int8_t i = 0; i < static_cast<int8_t>(at::ScalarType::NumOptions); ++i) {
    const auto dtype = static_cast<at::ScalarType>(i);
    if (name == at::toString(dtype)) return dtype;
  }
  throw DataError("the checkpoint's part learnt names an unknown dtype, '" + name + "'");
}

FieldContract field_in(const json& own, const json& saved) {
  FieldContract field;
  field.info.name = own.at("name").get<std::string>();
  field.info.dtype = dtype_named(own.at("dtype").get<std::string>());
  field.info.shape = own.at("shape").get<std::vector<int64_t>>();
  if (own.contains("num_classes")) field.info.num_classes = own["num_classes"].get<int64_t>();
  const auto names = [&](const char* kind) {
    return saved.value(kind, json::object()).value(field.info.name, Texts());
  };
  field.class_names = names("classes");
  field.names_within = names("columns");
  field.one_hot_names = names("numbers");
  field.called = own.value("called", std::string());
  field.palette = own.value("palette", std::vector<uint8_t>());
  if (own.contains("scaling")) {
    const json& scaling = own["scaling"];
    field.scaling = {scaling.at("scale").get<std::vector<double>>(), scaling.at("offset").get<std::vector<double>>(),
                     scaling.value("dims_behind", int64_t{0})};
  }
  return field;
}

/// What the numbers of a field are called: kind by kind, as messages name these.
std::vector<std::pair<const char*, const Texts*>> names_of(const FieldContract& field) {
  return {{"classes", &field.class_names}, {"columns", &field.names_within}, {"numbers", &field.one_hot_names}};
}

FieldContract field_of(const Dataset& data, const FieldInfo& info, const DataTransforms* transforms) {
  const FieldFacts facts = data.facts().field(info.name);
  const auto scaling = transforms ? transforms->scaling(info) : std::nullopt;
  return {info, facts.class_names, facts.names_within, facts.one_hot_names, facts.called, facts.palette, scaling};
}

/// Of a checkpoint that says what was learnt, but not of which fields.
DataContract older_contract(const json& saved, const Recipe& recipe, std::vector<std::string>& notes) {
  const auto train = recipe.dataset.train.build({});
  const json known = inferred_in(saved);
  train->set_inferred(known);
  const DatasetInfo info = train->info();
  DataTransforms transforms(recipe, &info, {});
  transforms.set_learnt(saved.value("transforms", json()));
  DataContract contract;
  contract.target = info.target;
  contract.ids = train->facts().ids;
  const bool has_names = saved.contains("classes") || saved.contains("columns");
  for (const FieldInfo& field : info.fields) {
    contract.fields.push_back(field_of(*train, field, &transforms));
    FieldContract& own = contract.fields.back();
    if (!has_names) continue;
    own.class_names = saved.value("classes", json::object()).value(field.name, Texts());
    own.names_within = saved.value("columns", json::object()).value(field.name, Texts());
  }
  const json now = has_names ? json() : train->facts().inferred();
  if (now.contains("classes")) {
    const auto classes = now["classes"].get<Texts>();
    for (FieldContract& field : contract.fields) {
      if (field.info.name == info.target) field.class_names = classes;
    }
    if (known.is_null()) {
      notes.push_back(
          "the checkpoint is older than the saving of classes' names; they are taken from dataset.train as it is "
          "now: " +
          join(classes));
    }
  }
  return contract;
}

DataContract saved_contract(const json& saved) {
  DataContract contract;
  for (const json& own : saved.at("fields")) contract.fields.push_back(field_in(own, saved));
  contract.target = saved.at("target").get<std::string>();
  contract.ids = saved.value("ids", Texts());
  return contract;
}

}  // namespace

at::Tensor FieldContract::in_units(const at::Tensor& values) const {
  return scaling ? trainrun::in_units(*scaling, values) : values.to(at::kDouble);
}

at::Tensor FieldContract::differences_in_units(const at::Tensor& values) const {
  return scaling ? trainrun::differences_in_units(*scaling, values) : values.to(at::kDouble);
}

DataContract DataContract::of(const Dataset& train, const DataTransforms* transforms) {
  DataContract contract;
  const DatasetInfo info = train.info();
  const DatasetFacts facts = train.facts();
  contract.target = info.target;
  contract.ids = facts.ids;
  for (const FieldInfo& field : info.fields) contract.fields.push_back(field_of(train, field, transforms));
  contract.dataset = train.learnt();
  contract.transforms = transforms ? transforms->learnt() : json();
  contract.inferred = facts.inferred();
  return contract;
}

DataContract DataContract::from_json(const json& saved, const Recipe& recipe, std::vector<std::string>& notes) {
  DataContract contract;
  try {
    contract = saved.contains("fields") ? saved_contract(saved) : older_contract(saved, recipe, notes);
  } catch (const json::exception& error) {
    throw DataError(std::string("the checkpoint's part learnt cannot be read: ") + error.what());
  }
  contract.dataset = saved.value("dataset", json());
  contract.transforms = saved.value("transforms", json());
  contract.inferred = inferred_in(saved);
  return contract;
}

json DataContract::to_json() const {
  json saved = {{"dataset", dataset}, {"transforms", transforms}, {"target", target}, {"fields", json::array()}};
  if (!inferred.is_null()) saved["inferred"] = inferred;
  if (!ids.empty()) saved["ids"] = ids;
  for (const FieldContract& field : fields) {
    saved["fields"].push_back(json_of(field));
    for (const auto& [kind, names] : names_of(field)) {
      if (!names->empty()) saved[kind][field.info.name] = *names;
    }
  }
  return saved;
}

const FieldContract* DataContract::field(const std::string& name) const {
  for (const FieldContract& field : fields) {
    if (field.info.name == name) return &field;
  }
  return nullptr;
}

Texts DataContract::class_names(const std::string& field) const {
  const FieldContract* found = this->field(field);
  return found ? found->class_names : Texts();
}

DatasetInfo DataContract::info() const {
  DatasetInfo info;
  info.target = target;
  for (const FieldContract& field : fields) info.fields.push_back(field.info);
  return info;
}

json DataContract::columns() const {
  json columns = json::object();
  for (const FieldContract& field : fields) {
    if (!field.names_within.empty()) columns[field.info.name] = field.names_within;
  }
  return columns;
}

std::map<std::string, Scaling> DataContract::scalings() const {
  std::map<std::string, Scaling> scalings;
  for (const FieldContract& field : fields) {
    if (field.scaling) scalings.emplace(field.info.name, *field.scaling);
  }
  return scalings;
}

std::vector<std::string> DataContract::lines() const {
  std::vector<std::string> lines;
  for (const FieldContract& field : fields) {
    std::string line = field.info.name + " " + shape_text(field.info.shape) + " " + dtype_name(field.info.dtype);
    if (!field.called.empty() && field.called != field.info.name) line += ", in the data '" + field.called + "'";
    for (const auto& [kind, names] : names_of(field)) {
      const bool says_more = names == &field.names_within && !field.one_hot_names.empty();  // the next kind does
      if (!names->empty() && !says_more) line += ", " + std::string(kind) + " " + shown(*names);
    }
    if (field.scaling) {
      constexpr int kFigures = 6;
      line += ", scaled: (x - " + in_figures(field.scaling->offset.at(0), kFigures) + ") / " +
              in_figures(field.scaling->scale.at(0), kFigures) + (field.scaling->scale.size() > 1 ? ", …" : "");
    }
    lines.push_back(line + (field.info.name == target ? " (the target)" : ""));
  }
  if (!ids.empty()) lines.push_back("samples are identified by " + join(ids));
  return lines;
}

void DataContract::read(Dataset& data, const std::string& path) const {
  share_learnt(data, dataset);
  const DatasetFacts facts = data.facts();
  for (const FieldInfo& info : data.info().fields) {
    const FieldContract* own = field(info.name);
    if (!own) continue;
    const FieldContract found = field_of(data, info, nullptr);
    const auto all_own = names_of(*own);
    const auto all_found = names_of(found);
    for (size_t i = 0; i < all_own.size(); ++i) {
      const auto& [kind, names] = all_found[i];
      if (names->empty() || all_own[i].second->empty() || *names == *all_own[i].second) continue;
      const std::string advice =
          std::string(kind) == "columns" ? "; name them in one order by `features`" : "; list them in one order";
      throw DataError(path + ": the " + kind + " of '" + info.name + "' are " + shown(*names) +
                      ", but those of dataset.train are " + shown(*all_own[i].second) + advice);
    }
  }
}

json inferred_in(const json& saved) {
  if (saved.contains("inferred")) return saved["inferred"];
  const json dataset = saved.value("dataset", json());
  const bool has_classes = dataset.is_object() && dataset.contains("classes") && dataset["classes"].is_array();
  return has_classes ? dataset : json();
}

std::optional<DataContract> fields_in(const json& saved) {
  if (!saved.contains("fields")) return std::nullopt;
  return saved_contract(saved);
}

}  // namespace trainrun
