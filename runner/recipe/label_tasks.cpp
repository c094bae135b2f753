#include "runner/recipe/label_tasks.h"

#include <algorithm>
#include <string>
#include <vector>

#include "registry/kinds/loss.h"

namespace trainrun {
namespace {

/// A component's type, also where only its name is written; "" where there is none.
std::string type_of(const Value& component) {
  const Value* type = component.is_map() ? component.find("type") : &component;
  return type && type->is_scalar() ? type->text() : "";
}

bool is_label(const std::string& name) { return name == "label" || name == "labels"; }

/// Without `inputs` a loss reads the data set's target.
bool reads_labels(const Component<LossKind>& loss) {
  const Names& inputs = loss.common.inputs;
  return inputs.empty() || std::any_of(inputs.begin(), inputs.end(), is_label);
}

/// Whether there are losses that read the labels, and all of them learn numbers. Not if they are faulty, which is
/// reported elsewhere.
bool learn_numbers(const Value& written, const Catalog& catalog) {
  std::vector<Problem> problems;
  Reader reader(catalog, problems);
  const auto losses = Codec<LossList>::read(written, reader);
  if (!losses || !problems.empty()) return false;
  bool any = false;
  for (const Component<LossKind>& loss : *losses) {
    if (!reads_labels(loss)) continue;
    if (!loss.facts({}).learns_numbers()) return false;
    any = true;
  }
  return any;
}

/// Whether a transform reads classes.
bool has_one_hot(const Value& dataset) {
  for (const char* list : {"transforms", "train_transforms", "eval_transforms"}) {
    const Value* transforms = dataset.find(list);
    if (!transforms || !transforms->is_list()) continue;
    for (const Value& transform : transforms->items()) {
      const Value* field = transform.find("field");
      if (type_of(transform) == "OneHot" && (!field || (field->is_scalar() && is_label(field->text())))) return true;
    }
  }
  return false;
}

bool is_given(const Value& map, const char* key) {
  const Value* value = map.find(key);
  return value && !value->is_null();
}

/// Whether `columns` say that the label is a class.
bool lists_label(const Value& dataset) {
  const Value* label = dataset.find("label");
  const Value* columns = dataset.find("columns");
  return label && label->is_scalar() && columns && columns->find(label->text());
}

bool leaves_task_open(const Value& dataset, const Catalog& catalog) {
  const auto* entry = catalog.datasets.find(type_of(dataset));
  if (!entry || !dataset.is_map()) return false;
  const auto has = [&](const char* name) {
    return std::any_of(entry->parameters.begin(), entry->parameters.end(), [&](const Parameter& parameter) {
      const auto& choices = parameter.choices;
      const bool fits =
          name != std::string("task") || std::find(choices.begin(), choices.end(), "regression") != choices.end();
      return parameter.name == name && fits;
    });
  };
  return has("task") && has("label") && !is_given(dataset, "task") && !is_given(dataset, "num_classes") &&
         !is_given(dataset, "classes") && !lists_label(dataset);
}

void set_tasks(Value& value, const Catalog& catalog) {
  if (leaves_task_open(value, catalog))
    value.set("task", value.place(), Value::scalar("regression", false, value.place()));
  for (Value& item : value.items()) set_tasks(item, catalog);
  for (Value::Entry& entry : value.entries()) set_tasks(entry.value, catalog);
}

}  // namespace

Value with_label_tasks(Value recipe, const Catalog& catalog) {
  Value* dataset = recipe.find("dataset");
  const Value* losses = recipe.find("loss");
  if (dataset && losses && learn_numbers(*losses, catalog) && !has_one_hot(*dataset)) set_tasks(*dataset, catalog);
  return recipe;
}

}  // namespace trainrun
