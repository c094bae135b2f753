#include "runner/interop/python/wiring.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "runner/base/ascii_name.h"
#include "runner/interop/python/expression.h"

namespace trainrun::python {
namespace {

void add_once(std::vector<std::string>& list, const std::string& item) {
  if (std::find(list.begin(), list.end(), item) == list.end()) list.push_back(item);
}

/// Finds what losses and metrics name: outputs of the graph, and fields of the batch.
class Wirer {
 public:
  Wirer(const Recipe& recipe, const Graph& graph, const DatasetInfo& info, SourceFile& file)
      : recipe_(recipe), graph_(graph), info_(info), file_(file) {}

  /// What a loss or metric reads: a slot of the graph, or a field of the batch, or what another model gives.
  struct Source {
    std::optional<size_t> slot;
    std::string name;
    bool is_model = false;
  };

  std::vector<Source> sources_of(const Names& names, const Place& place, const std::string& path) {
    if (names.empty()) return {{graph_.nodes().back().outputs[0], ""}, {std::nullopt, info_.target}};
    std::vector<Source> sources;
    for (const std::string& name : names) {
      if (info_.find(name)) {
        sources.push_back({std::nullopt, name});
      } else if (const auto slot = graph_.slot(name)) {
        sources.push_back({slot, ""});
      } else {
        check_model(name, place, path);
        sources.push_back({std::nullopt, name, true});
      }
      if (sources.back().slot) add_slot(*sources.back().slot);
    }
    return sources;
  }

  void add_slot(size_t slot) {
    if (std::find(slots.begin(), slots.end(), slot) == slots.end()) slots.push_back(slot);
  }

  std::vector<size_t> slots;

 private:
  void check_model(const std::string& name, const Place& place, const std::string& path) const {
    const RoleSection* model = recipe_.models.find(name);
    if (model && model->from && recipe_.model.adapters && recipe_.models.entries.size() == 1) return;
    file_.refuse(place, path,
                 "'" + name +
                     "' is the output of another model, beside the recipe's own, which is written where it is that one "
                     "without its adapters (`from`), alone");
  }

  const Recipe& recipe_;
  const Graph& graph_;
  const DatasetInfo& info_;
  SourceFile& file_;
};

/// What else the functions of a program call by a name that a field may have (program.cpp).
std::set<std::string> names_of_program() {
  return {"batch", "column", "count", "figures", "json",  "loader", "loss",    "math",  "net",
          "nn",    "offset", "right", "rows",    "scale", "size",   "targets", "torch", "total"};
}

/// The variable of a field, which nothing else of the program is called.
std::string variable_of(const std::string& field, const std::set<std::string>& taken) {
  std::string name = ascii_name(field, "_", '_');
  if (!is_identifier(name)) name.insert(0, "field_");
  while (taken.contains(name)) name += '_';
  return name;
}

}  // namespace

std::string in_batch(const std::string& field) { return "batch[" + quoted(field) + "]"; }

std::vector<std::string> Wiring::fields() const {
  std::vector<std::string> all;
  for (const std::string& name : network.inputs) add_once(all, name);
  for (const Target& target : targets) add_once(all, target.field);
  return all;
}

Wiring wire(const Recipe& recipe, const Graph& graph, const DatasetInfo& info, const LayerRegistry& registry,
            SourceFile& file) {
  Wiring wiring;
  Wirer wirer(recipe, graph, info, file);
  std::vector<std::vector<Wirer::Source>> losses;
  std::vector<std::vector<Wirer::Source>> metrics;
  const auto sources_of = [&](const auto& component) {
    auto sources = wirer.sources_of(component.common.inputs, component.place, component.path);
    if (component.common.inputs.empty()) wirer.add_slot(*sources[0].slot);
    return sources;
  };
  for (const auto& loss : recipe.loss) losses.push_back(sources_of(loss));
  for (const auto& metric : recipe.metrics) metrics.push_back(sources_of(metric));
  if (wirer.slots.empty()) wirer.add_slot(graph.nodes().back().outputs[0]);
  std::map<size_t, Wiring::Kind> kinds;
  for (const Graph::Node& node : graph.nodes()) {
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const auto& shape = node.output_shapes[i];
      const std::vector<int64_t> behind(shape.empty() ? shape.end() : shape.begin() + 1, shape.end());
      kinds[node.outputs[i]] = {behind, at::isIntegralType(node.output_dtypes[i], true)};
    }
  }
  wiring.network = write_network(graph, wirer.slots, registry, file);
  std::map<size_t, std::string> variables;  // of slots
  for (size_t i = 0; i < wirer.slots.size(); ++i) {
    std::string name = wirer.slots.size() == 1 ? "output" : wiring.network.outputs[i];
    if (name == "x") name = "output";
    if (info.find(name)) name += "_output";
    variables[wirer.slots[i]] = name;
    wiring.kinds[name] = kinds[wirer.slots[i]];
    wiring.outputs.push_back(name);
  }
  std::map<std::string, std::string> of_fields;  // their variables
  std::set<std::string> taken = names_of_program();
  taken.insert(wiring.outputs.begin(), wiring.outputs.end());
  const auto variable = [&](const Wirer::Source& source) {
    if (source.slot) return variables.at(*source.slot);
    auto& name = of_fields[source.name];
    if (!name.empty()) return name;
    name = variable_of(source.name, taken);
    taken.insert(name);
    if (source.is_model) {
      wiring.reference = name;
      wiring.kinds[name] = kinds[graph.nodes().back().outputs[0]];
      return name;
    }
    wiring.targets.push_back({source.name, name});
    if (const FieldInfo* field = info.find(source.name)) {
      wiring.kinds[name] = {field->shape, at::isIntegralType(field->dtype, true)};
    }
    return name;
  };
  const auto resolve = [&](const auto& all, auto& into) {
    for (const auto& sources : all) {
      std::vector<std::string> names;
      for (const auto& source : sources) names.push_back(variable(source));
      into.push_back(std::move(names));
    }
  };
  resolve(losses, wiring.losses);
  for (const std::string& output : wiring.outputs) {
    for (const auto& loss : wiring.losses) {
      if (std::find(loss.begin(), loss.end(), output) != loss.end()) add_once(wiring.of_losses, output);
    }
  }
  for (const auto& loss : wiring.losses) {
    for (const std::string& name : loss) add_once(wiring.of_losses, name);
  }
  resolve(metrics, wiring.metrics);
  const bool is_whole = wirer.slots == std::vector<size_t>{graph.nodes().back().outputs[0]};
  if (!wiring.reference.empty() && !is_whole) {
    file.refuse(recipe.loss[0].place, recipe.loss[0].path,
                "a model beside the recipe's own is written where the last layer's output alone is compared with it");
  }
  return wiring;
}

}  // namespace trainrun::python
