#include "runner/model/unread_fields.h"

#include <algorithm>
#include <set>

#include "registry/data/ragged_rows.h"
#include "registry/language/text_forms.h"
#include "registry/models/language_model.h"

namespace trainrun {
namespace {

std::set<std::string> all_read(const Recipe& recipe, const Graph& graph, const DatasetInfo& info) {
  std::set<std::string> read = {info.target};
  for (const Component<LossKind>& loss : recipe.loss) read.insert(loss.common.inputs.begin(), loss.common.inputs.end());
  for (const Component<MetricKind>& metric : recipe.metrics) {
    read.insert(metric.common.inputs.begin(), metric.common.inputs.end());
  }
  for (std::string& name : fields_read(graph)) read.insert(std::move(name));
  return read;
}

}  // namespace

std::vector<std::string> fields_read(const Graph& graph) {
  std::set<size_t> slots;  // the first ones are the fields
  for (const Graph::Node& node : graph.nodes()) slots.insert(node.inputs.begin(), node.inputs.end());
  std::vector<std::string> names;
  for (size_t i = 0; i < graph.input_names().size(); ++i) {
    if (slots.contains(i)) names.push_back(graph.input_names()[i]);
  }
  return names;
}

std::vector<Problem> unread_fields(const Recipe& recipe, const Graph& graph, const DatasetInfo& info) {
  const auto are_texts =
      std::ranges::any_of(info.fields, [](const FieldInfo& field) { return holds_tokens(field.name); });
  if (are_texts || !recipe.models.entries.empty()) return {};  // other models may read them
  const std::set<std::string> read = all_read(recipe, graph, info);
  std::vector<std::string> unread;
  bool is_category = false;
  for (const FieldInfo& field : info.fields) {
    const bool is_mask =
        std::ranges::any_of(info.fields, [&](const FieldInfo& other) { return mask_name(other.name) == field.name; });
    if (is_mask || read.contains(field.name)) continue;
    unread.push_back("'" + field.name + "'");
    is_category = is_category || (field.dtype == at::kLong && field.shape.empty());
  }
  if (unread.empty()) return {};
  const Component<DatasetKind>& train = recipe.dataset.train;
  std::string text = "no layer, loss or metric reads the field" + std::string(unread.size() == 1 ? " " : "s ") +
                     join(unread) + "; a layer reads a field by its name in `inputs`";
  if (is_category) text += ", and a category is among the features where its column says `one_hot: true`";
  return {{train.place, train.path, text}};
}

}  // namespace trainrun
