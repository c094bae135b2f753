#include "runner/interop/python/drafts.h"

#include <torch/nn/module.h>

#include <algorithm>

#include "runner/base/ascii_name.h"
#include "runner/interop/python/layer_forms.h"

namespace trainrun::python {
namespace {

/// Where in a graph a value is read: the numbers of the layers; those that the graph returns are read at its end.
std::vector<std::vector<size_t>> readers_of(const Graph& graph, const std::vector<size_t>& slots) {
  std::vector<std::vector<size_t>> readers(graph.num_slots());
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    for (const size_t slot : graph.nodes()[i].inputs) readers[slot].push_back(i);
  }
  for (const size_t slot : slots) readers[slot].push_back(graph.nodes().size());
  return readers;
}

std::string name_for(const std::string& name) {
  const std::string text = ascii_name(name, "_", '_');
  return is_identifier(text) ? text : "x" + text;
}

bool is_taken(const std::string& name) {
  static const std::set<std::string> names = {
      "apply",  "buffers", "children",     "cpu",     "cuda",       "double",     "eval",     "float",    "forward",
      "half",   "modules", "to",           "train",   "type",       "clear",      "items",    "keys",     "pop",
      "update", "values",  "share_memory", "compile", "parameters", "state_dict", "training", "bfloat16", "xpu"};
  return names.contains(name);
}

}  // namespace

/// The names of the values in a graph's slots.
struct Drafter::Values {
  std::vector<std::string> names;
  std::vector<std::vector<size_t>> readers;
  std::map<std::string, size_t> holders{};  // the slot whose value a name has by now

  void give(size_t slot, const std::string& name) {
    names[slot] = name;
    holders[name] = slot;
  }
  /// Of what layer `number` gives: a value that only the next layer reads is x, unless the value of that name is still
  /// read.
  void give(size_t slot, size_t number, const std::string& layer) {
    const auto reads_next = [&](size_t reader) { return reader == number + 1; };
    const bool is_short = std::all_of(readers[slot].begin(), readers[slot].end(), reads_next);
    std::string name = is_short ? "x" : name_for(layer);
    if (is_short && !is_free(name, number)) name = "y";
    while (!is_free(name, number)) name += '_';
    give(slot, name);
  }

 private:
  bool is_free(const std::string& name, size_t number) const {
    const auto holder = holders.find(name);
    if (holder == holders.end()) return true;
    const auto& all = readers[holder->second];
    return std::all_of(all.begin(), all.end(), [&](size_t reader) { return reader <= number; });
  }
};

std::string access_to(const std::string& child) {
  if (is_taken(child)) return "self._modules[" + quoted(child) + "]";  // Module has a method of that name
  return is_identifier(child) ? "self." + child : "self[" + quoted(child) + "]";
}

std::shared_ptr<Draft> Drafter::draft(const Graph& graph, const std::string& title, const std::vector<size_t>& slots,
                                      std::vector<std::string>* outputs) {
  const bool is_whole = outputs != nullptr;  // whose inputs are all fields of the batch, read or not
  auto draft = std::make_shared<Draft>();
  draft->title = title;
  Values values{std::vector<std::string>(graph.num_slots()), readers_of(graph, slots)};
  for (size_t i = 0; i < graph.num_inputs(); ++i) {
    const std::string name = graph.input_names()[i].empty() ? "x" : name_for(graph.input_names()[i]);
    values.names[i] = name;
    if (is_whole && values.readers[i].empty()) continue;
    values.give(i, name);
    draft->inputs.push_back(name);
  }
  for (size_t i = 0; i < graph.nodes().size(); ++i) add(graph.nodes()[i], i, graph, values, *draft);
  for (const size_t slot : slots) {
    draft->result += (draft->result.empty() ? "" : ", ") + values.names[slot];
    if (outputs) outputs->push_back(values.names[slot]);
  }
  const auto is_number = [](const Draft::Child& child) { return !is_identifier(child.name); };
  const auto numbers = std::count_if(draft->children.begin(), draft->children.end(), is_number);
  if (numbers != 0 && numbers != static_cast<int64_t>(draft->children.size())) draft->is_chain = false;
  const bool ends_with_last = graph.nodes().empty() || slots == std::vector<size_t>{graph.nodes().back().outputs[0]};
  if (draft->inputs.size() != 1 || !ends_with_last) draft->is_chain = false;
  drafts_.push_back(draft);
  return draft;
}

void Drafter::note_state(const Graph::Node& node, const std::string& access, Draft& draft) {
  if (!node.layer.state) return;
  modules_.emplace(node.layer.state.get(), std::pair(&draft, node.name));
  if (node.layer.graph) return;
  for (const auto& item : node.layer.state->named_parameters()) {
    if (!item.value().defined()) continue;
    const auto [known, is_new] =
        parameters_.emplace(item.value().unsafeGetTensorImpl(), std::pair(&draft, access + "." + item.key()));
    if (is_new) continue;
    if (known->second.first != &draft) {
      file_.refuse(node.place, node.path, "a weight that is shared with a layer of another list is not written");
    }
    draft.ties.push_back(access + "." + item.key() + " = " + known->second.second);
    draft.is_chain = false;  // Sequential has no place where it could be written
  }
}

Draft::Child Drafter::child_of(const Graph::Node& node, const std::vector<std::string>& inputs, std::string& call,
                               std::string& first, std::string& targets, bool& keeps) {
  Draft::Child child{node.name};
  const auto form = form_of(node, inputs, registry_, file_);
  call = form ? form->call : "{module}({all})";
  if (form) {
    first = form->first;
    targets = form->targets;
    keeps = form->module.has_value();
    if (keeps) child.make = *form->module;
  } else if (node.layer.graph) {
    const bool is_list = node.type == "Sequential" || is_repetition(node);
    const std::string title = camel(is_list ? node.name : node.type);
    std::vector<size_t> slots = node.layer.graph->outputs();
    child.inner = this->draft(*node.layer.graph, title, slots);
    child.inner->is_block = !is_list && !registry_.find(node.type);
  } else {
    const auto* entry = registry_.find(node.type);
    const std::string of = entry && !entry->origin.empty() ? " of the plugin " + entry->origin : "";
    file_.refuse(node.place, node.path,
                 "the layer " + node.type + of +
                     " has no form in PyTorch here; write it in layers that torch.nn has, "
                     "or export --format torchscript");
  }
  child.is_plain = node.inputs.size() == 1 && (call == "{module}({0})" || call == "{module}({all})") && first.empty();
  return child;
}

void Drafter::add(const Graph::Node& node, size_t number, const Graph& graph, Values& values, Draft& draft) {
  std::vector<std::string> inputs;
  for (const size_t slot : node.inputs) inputs.push_back(values.names[slot]);
  std::string call;
  std::string first;
  std::string targets;
  bool keeps = true;
  Draft::Child child{node.name};
  const auto shared = node.layer.state ? modules_.find(node.layer.state.get()) : modules_.end();
  if (shared != modules_.end()) {
    if (shared->second.first != &draft) {
      file_.refuse(node.place, node.path, "a layer that is shared with another list is not written");
    }
    child.same_as = shared->second.second;
    call = "{module}({all})";
  } else {
    child = child_of(node, inputs, call, first, targets, keeps);
    note_state(node, access_to(node.name), draft);
  }
  if (keeps && is_taken(node.name)) draft.is_chain = false;
  const bool follows = number == 0 ? node.inputs.size() == 1 && node.inputs[0] < graph.num_inputs()
                                   : node.inputs == std::vector<size_t>{graph.nodes()[number - 1].outputs[0]};
  if (!keeps || !child.is_plain || !follows || !child.same_as.empty()) draft.is_chain = false;
  Draft::Statement statement;
  statement.expression = filled(call, keeps ? access_to(node.name) : "", inputs);
  std::vector<std::string> names;
  bool reads_further = false;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const size_t slot = node.outputs[i];
    if (std::find(node.inputs.begin(), node.inputs.end(), slot) == node.inputs.end() && values.names[slot].empty()) {
      values.give(slot, number, i == 0 ? node.name : node.name + "_" + std::to_string(i));
    }
    const bool is_read = !values.readers[slot].empty();
    if (i > 0 && is_read) reads_further = true;
    names.push_back(is_read || i == 0 ? values.names[slot] : "_");
  }
  if (node.outputs.size() > 1 && !reads_further && (!first.empty() || keeps)) {
    statement.expression += first.empty() ? "[0]" : first;
    names.resize(1);
    draft.is_chain = false;
  }
  if (names.size() == 1) {
    statement.targets = names[0];
  } else if (!targets.empty()) {
    statement.targets = filled(targets, "", names);
  } else {
    for (const std::string& name : names) statement.targets += (statement.targets.empty() ? "" : ", ") + name;
  }
  draft.statements.push_back(std::move(statement));
  if (keeps) draft.children.push_back(std::move(child));
}

}  // namespace trainrun::python
