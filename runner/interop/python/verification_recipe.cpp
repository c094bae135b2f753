#include "runner/interop/python/verification_recipe.h"

#include <algorithm>
#include <tuple>

#include "runner/interop/python/transforms.h"

namespace trainrun::python {
namespace {

/// Text as a recipe has it, at no place.
Value scalar(const std::string& text) { return Value::scalar(text, /*quoted=*/false, {}); }

Value mapping(const std::vector<std::pair<std::string, Value>>& entries) {
  std::vector<Value::Entry> all;
  for (const auto& [key, value] : entries) all.push_back({key, {}, value});
  return Value::map(std::move(all), {});
}

bool is_dropout(const std::string& type) {
  return type.find("Dropout") != std::string::npos || type == "StochasticDepth";
}
bool names_dropout(const std::string& parameter) {
  return parameter.find("dropout") != std::string::npos || parameter.find("_pdrop") != std::string::npos ||
         parameter == "stochastic_depth_prob";
}

std::string type_of(const Value& value) {
  if (value.is_scalar()) return value.text();
  const Value* type = value.find("type");
  return type && type->is_scalar() ? type->text() : "";
}

class Deriver {
 public:
  explicit Deriver(const Catalog& catalog) : catalog_(catalog) {}

  /// Layers, wherever they stand below `value`.
  void without_dropout(Value& value) {
    if (value.is_list()) {
      for (Value& item : value.items()) {
        if (item.is_scalar() && is_layer(item.text())) item = mapping({{"type", item}});
        without_dropout(item);
      }
      return;
    }
    if (!value.is_map()) return;
    const auto* entry = catalog_.layers.find(type_of(value));
    for (const Parameter& parameter : entry ? entry->parameters : std::vector<Parameter>()) {
      const bool drops = names_dropout(parameter.name) || (is_dropout(entry->name) && parameter.name == "p");
      if (!drops || parameter.default_value.is_string()) continue;
      value.set(parameter.name, {}, scalar("0"));
      note("dropout 0");
    }
    for (auto& item : value.entries()) without_dropout(item.value);
  }

  void without_dropout_of_adapters(Value& model) {
    Value* adapters = model.is_map() ? model.find("adapters") : nullptr;
    const Value* dropout = adapters && adapters->is_map() ? adapters->find("dropout") : nullptr;
    if (!dropout || !dropout->is_scalar() || dropout->scalar_type() == ScalarType::kNull) return;
    adapters->set("dropout", {}, scalar("0"));
    note("dropout 0");
  }

  /// The lists of transforms below `data`.
  void without_draws(Value& data) {
    if (data.is_list()) {
      for (Value& item : data.items()) without_draws(item);
    }
    if (!data.is_map()) return;
    if (const Value* sampling = data.find("sampling"); sampling && sampling->text() == "random") {
      data.erase("sampling");
      data.erase("num_samples");
      note("blocks of text one after the other");
    }
    for (auto& entry : data.entries()) {
      const bool is_list = entry.key.ends_with("transforms") && entry.value.is_list();
      if (is_list) quiet(entry.value);
      if (!is_list) without_draws(entry.value);
    }
  }

  void note(const std::string& change) {
    if (std::find(changes.begin(), changes.end(), change) == changes.end()) changes.push_back(change);
  }

  std::vector<std::string> changes;

 private:
  bool is_layer(const std::string& text) const { return catalog_.layers.find(text) != nullptr; }

  /// Fields that follow from the sample itself take the place of those that are drawn.
  void copies_for_triplets(const Value& triplets, std::vector<Value>& kept) {
    note("copies of the anchor, scaled, for Triplets");
    const auto name = [&](const char* key) {
      return triplets.find(key) ? triplets.find(key)->text() : std::string(key);
    };
    const std::string field = triplets.find("field") ? triplets.find("field")->text() : "image";
    for (const auto& [key, mean, std] : {std::tuple("positive", "0.1", "1.2"), std::tuple("negative", "0.4", "0.6")}) {
      kept.push_back(mapping({{"type", scalar("Copy")}, {"field", scalar(field)}, {"to", scalar(name(key))}}));
      kept.push_back(mapping({{"type", scalar("Normalize")},
                              {"field", scalar(name(key))},
                              {"mean", Value::list({scalar(mean)}, {})},
                              {"std", Value::list({scalar(std)}, {})}}));
    }
  }

  void quiet(Value& transforms) {
    std::vector<Value> kept;
    for (Value& one : transforms.items()) {
      const std::string type = type_of(one);
      if (draws_and_keeps_size(type)) {
        note("without " + type);
        continue;
      }
      if (type == "GaussianNoise") {
        one.set("sigma", {}, scalar("0"));
        note("GaussianNoise of 0");
      }
      if (type == "Triplets") {
        copies_for_triplets(one, kept);
        continue;
      }
      if (type == "RandomResizedCrop") {
        const Value* size = one.find("size");
        const Value both = size->is_list() ? *size : Value::list({*size, *size}, {});
        kept.push_back(mapping({{"type", scalar("Resize")}, {"size", both}}));
        note("Resize for RandomResizedCrop");
        continue;
      }
      kept.push_back(one);
    }
    transforms.items() = std::move(kept);
  }

  const Catalog& catalog_;
};

bool is_null(const Value& value) {
  return value.is_null() || (value.is_scalar() && value.scalar_type() == ScalarType::kNull);
}

int64_t number(const Value& map, const char* key, int64_t fallback) {
  const Value* value = map.find(key);
  return value && value->is_scalar() ? parse_integer(value->text()).value_or(fallback) : fallback;
}

/// Sets `section.key`.
void set(Value& recipe, const std::string& section, const std::string& key, Value value) {
  if (!recipe.find(section) || !recipe.find(section)->is_map()) recipe.set(section, {}, mapping({}));
  recipe.find(section)->set(key, {}, std::move(value));
}

void in_one_process(Value& recipe, Deriver& deriver) {
  const int64_t processes = number(recipe, "num_processes", 1);
  if (processes > 1) {
    Value& loader = *recipe.find("dataloader");
    const int64_t batch_size = number(loader, "batch_size", 1) * processes;
    loader.set("batch_size", {}, scalar(std::to_string(batch_size)));
    deriver.note("one process with batches of " + std::to_string(batch_size));
  }
  for (const char* key : {"num_processes", "distributed_type", "sharding", "distributed", "sync_batchnorm"})
    recipe.erase(key);
}

}  // namespace

void begin_with(Value& recipe, const std::string& weights) {
  set(recipe, "model", "weights", Value::scalar(weights, /*quoted=*/true, {}));
}

VerificationRecipe verification_recipe(const Value& resolved, int64_t steps, const std::string& folder,
                                       const Catalog& catalog) {
  Value recipe = resolved;
  Deriver deriver(catalog);
  if (Value* model = recipe.find("model")) {
    deriver.without_dropout(*model);
    deriver.without_dropout_of_adapters(*model);
  }
  if (Value* dataset = recipe.find("dataset")) {
    deriver.without_draws(*dataset);
    Value* fold = dataset->find("fold");
    if (fold && fold->is_map() && fold->find("folds") && !fold->find("index")) fold->set("index", {}, scalar("0"));
  }
  in_one_process(recipe, deriver);
  const Value* precision = recipe.find("mixed_precision");
  if (precision && precision->text() != "no") {
    deriver.note("float32 for " + precision->text());
    recipe.erase("mixed_precision");
  }
  if (Value* callbacks = recipe.find("callbacks"); callbacks && callbacks->is_list()) {
    std::erase_if(callbacks->items(), [](const Value& one) { return type_of(one) != "EMA"; });
    if (callbacks->items().empty()) recipe.erase("callbacks");
  }
  if (Value* training = recipe.find("training")) training->erase("num_epochs");
  set(recipe, "training", "max_steps", scalar(std::to_string(steps)));
  set(recipe, "training", "fuse", scalar("false"));
  // One evaluation, at the end, of a recipe that has any.
  const Value* evaluation = recipe.find("evaluation");
  const Value* every = evaluation && evaluation->is_map() ? evaluation->find("every") : nullptr;
  recipe.set("evaluation", {}, mapping({{"every", every && is_null(*every) ? *every : scalar(std::to_string(steps))}}));
  recipe.set("checkpoint", {}, mapping({{"every", Value::null({})}}));
  recipe.set("logging", {}, mapping({{"every_steps", scalar("1")}, {"report_to", Value::list({scalar("jsonl")}, {})}}));
  recipe.set("device", {}, scalar("cpu"));
  recipe.set("output_dir", {}, Value::scalar(folder, /*quoted=*/true, {}));
  return {std::move(recipe), deriver.changes};
}

}  // namespace trainrun::python
