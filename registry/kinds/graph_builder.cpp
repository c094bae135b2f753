#include "registry/kinds/graph_builder.h"

#include <c10/core/GradMode.h>

#include <algorithm>

#include "registry/graph/shape_mode.h"
#include "registry/kinds/layer_sharing.h"
#include "registry/tensors/component_error.h"
#include "registry/tensors/fault.h"

namespace trainrun {
namespace {

std::string sizes_text(const ParameterSizes& sizes) {
  std::vector<std::string> words;
  for (const auto& [parameter, shape] : sizes) words.push_back(parameter + " " + at::str(at::IntArrayRef(shape)));
  return words.empty() ? "none" : join(words);
}

const Place& place_of(const Component<LayerKind>& layer, const std::string& key) {
  const Value* value = layer.written.find(key);
  return value ? value->place() : layer.place;
}

}  // namespace

/// Adds the layers of a list to a graph, one by one.
class GraphBuilder {
 public:
  /// `is_model`: the list is all of a recipe's model.
  GraphBuilder(const LayerList& list, const LayerInputs& inputs, bool is_model)
      : scope_(*graph_),
        shapes_only_(ShapeMode::active()),
        may_be_whole_(is_model && list.layers.size() == 1),
        is_written_(list.is_written),
        around_(inputs) {
    graph_->input_names_ = inputs.names;
    graph_->num_inputs_ = inputs.examples.size();
    for (size_t i = 0; i < inputs.examples.size(); ++i) {
      const std::string name = i < inputs.names.size() ? inputs.names[i] : "";
      const std::string source = name.empty() ? "the enclosing layer" : "'" + name + "'";
      add_slot(inputs.examples[i], i < inputs.sources.size() ? inputs.sources[i] : source);
      if (!name.empty()) graph_->add_name(name, i);
      if (i < list.input_names.size()) graph_->add_name(list.input_names[i], i);
    }
    graph_->outputs_ = {0};
    names_outside_ = inputs.names_outside;
    for (size_t i = 0; i < list.layers.size(); ++i) {
      try {
        add(list.layers[i]);
      } catch (const RecipeError& error) {
        throw RecipeError(with_unknown_names(error.problems(), list, i));
      }
    }
    graph_->set_outputs(graph_->outputs_);
  }

  std::shared_ptr<Graph> graph() const { return graph_; }

 private:
  struct Made {
    Layer layer;
    Tensors outputs;
  };

  size_t add_slot(const at::Tensor& example, std::string source) {
    graph_->slots_.push_back(example.to(at::kMeta));
    examples_.push_back(example);
    sources_.push_back(std::move(source));
    return examples_.size() - 1;
  }

  void add(const LayerSpec& spec) {
    Graph::Node node;
    node.name = spec.name;
    node.type = spec.component.type;
    node.path = is_written_ ? spec.component.path : around_.path + "." + spec.name;
    node.place = is_written_ ? spec.component.place : around_.place;
    node.attributes = spec.component.attributes;
    node.own = {spec.component.options, spec.component.options_type, spec.component.form};
    if (const Value* init = spec.component.written.find("init")) node.init = std::make_shared<const Value>(*init);
    const LayerInputs inputs = wire(spec, node);
    Made made = in_shape_mode(spec, inputs, node);
    node.inferred = inputs.inferred();
    if (spec.component.common.share) {
      share(spec, inputs, std::move(made.layer), node);
    } else {
      node.layer = shapes_only_ ? std::move(made.layer) : make(spec, inputs, node, false).layer;
      initialize(spec, node.layer);
    }
    name_outputs(spec, made.outputs, node);
    node.adds_prefix = !may_be_whole_ || !node.layer.is_whole_model || spec.component.common.name;
    if (node.adds_prefix) {
      graph_->register_state(node.name, node.layer);
    } else {
      graph_->take_over_state(*node.layer.state);
    }
    if (spec.component.common.lr_scale != 1) graph_->lr_scales_[node.name] = spec.component.common.lr_scale;
    graph_->outputs_ = node.outputs;
    graph_->nodes_.push_back(std::move(node));
  }

  /// Makes `node`, `planned` for its shapes, the layer that `share` names: one module in both places, which draws no
  /// weights. A layer of another type has that one's weight as its own, and draws all its weights before, as in
  /// PyTorch.
  void share(const LayerSpec& spec, const LayerInputs& inputs, Layer planned, Graph::Node& node) {
    const std::string& name = *spec.component.common.share;
    const auto fail = [&](const std::string& key, const std::string& message) {
      const Value* written = spec.component.written.find(key);
      const Place& place = written ? written->place() : place_of(spec.component, "share");
      throw RecipeError({{place, node.path + "." + key, message}});
    };
    const Graph::Node* other = LayerScope::find(name);
    if (!other) fail("share", "no earlier layer is called '" + name + "'" + suggestion(name, LayerScope::names()));
    const std::string their_name = other->type + " '" + name + "'";
    node.layer = std::move(planned);
    const ParameterSizes own = parameter_sizes(node.layer);
    const ParameterSizes theirs = parameter_sizes(other->layer);
    const bool can_take = !shapes_only_ || !has_memory(other->layer);  // not within a container's own shape mode
    if (node.type == other->type && own == theirs) {
      if (const auto found = find_difference(node, *other)) {
        fail(found->option, "a shared layer is one module, with one set of options: " + found->text + " in " +
                                their_name + " (" + other->place.to_string() + ")");
      }
      const std::string once = " is that of " + their_name + ", which this layer shares; write it there";
      if (spec.component.common.init) fail("init", "init" + once);
      if (spec.component.common.lr_scale != 1) fail("lr_scale", "lr_scale" + once);
      if (has_tensors(other->layer)) {
        if (can_take) node.layer = other->layer.rewire ? other->layer.rewire(inputs) : other->layer;
      } else if (!shapes_only_) {
        node.layer = make(spec, inputs, node, false).layer;
      }
    } else if (node.layer.tie && own.contains("weight") && theirs.contains("weight") &&
               own.at("weight") == theirs.at("weight")) {
      if (!shapes_only_) node.layer = make(spec, inputs, node, false).layer;
      if (can_take) node.layer.tie("weight", *other->layer.state->named_parameters().find("weight"));
      initialize(spec, node.layer);
    } else {
      fail("share", "the parameters of " + node.type + " (" + sizes_text(own) + ") are not like those of " +
                        their_name + " (" + sizes_text(theirs) + ")");
    }
  }

  static void initialize(const LayerSpec& spec, const Layer& layer) {
    if (!spec.component.common.init) return;
    NamedTensors parameters;
    if (layer.state) {
      for (const auto& item : layer.state->named_parameters()) parameters.emplace_back(item.key(), item.value());
    }
    spec.component.common.init->apply(parameters);
  }

  /// Finds the slots that a layer reads.
  LayerInputs wire(const LayerSpec& spec, Graph::Node& node) {
    LayerInputs inputs;
    inputs.place = node.place;
    inputs.path = node.path;
    const auto read = [&](size_t slot, const std::string& name) {
      node.inputs.push_back(slot);
      node.input_shapes.push_back(examples_[slot].sizes().vec());
      inputs.names.push_back(name);
      inputs.examples.push_back(examples_[slot]);
      inputs.sources.push_back(sources_[slot]);
    };
    if (spec.component.common.inputs.empty()) read(graph_->outputs_[0], "");
    for (const std::string& name : spec.component.common.inputs) {
      const auto slot = graph_->slot(name);
      if (!slot) throw RecipeError({unknown_name(spec, name, graph_->names())});
      read(*slot, name);
    }
    inputs.set_num_own(node.inputs.size());
    for (const std::string& name : spec.captures) {
      if (const auto slot = graph_->slot(name)) {
        read(*slot, name);
      } else if (inputs.names_outside.empty()) {  // the nested layer that asks for it will say so, and where
        inputs.names_outside = graph_->names();
        inputs.names_outside.insert(inputs.names_outside.end(), names_outside_.begin(), names_outside_.end());
      }
    }
    return inputs;
  }

  Problem unknown_name(const LayerSpec& spec, const std::string& name, std::vector<std::string> known) const {
    known.insert(known.end(), names_outside_.begin(), names_outside_.end());
    const Value* inputs = spec.component.written.find("inputs");
    Place place = inputs ? inputs->place() : spec.component.place;
    for (const Value& item : inputs ? inputs->items() : std::vector<Value>()) {
      if (item.text() == name) place = item.place();
    }
    return {place, spec.component.path + ".inputs",
            "no earlier layer and no field of the batch is called '" + name + "'" + suggestion(name, known)};
  }

  /// `problems` of layer `failed`, and the names that it and the layers after it read but nobody has: no shapes are
  /// needed to know that.
  std::vector<Problem> with_unknown_names(std::vector<Problem> problems, const LayerList& list, size_t failed) const {
    std::vector<std::string> known = graph_->names();
    for (size_t i = failed; i < list.layers.size(); ++i) {
      const LayerSpec& spec = list.layers[i];
      for (const std::string& name : spec.component.common.inputs) {
        if (std::find(known.begin(), known.end(), name) != known.end()) continue;
        const Problem problem = unknown_name(spec, name, known);
        const auto same = [&](const Problem& other) { return other.to_string() == problem.to_string(); };
        if (std::none_of(problems.begin(), problems.end(), same)) problems.push_back(problem);
      }
      known.push_back(spec.name);
      known.insert(known.end(), spec.component.common.outputs.begin(), spec.component.common.outputs.end());
    }
    return problems;
  }

  Made in_shape_mode(const LayerSpec& spec, const LayerInputs& inputs, const Graph::Node& node) {
    const ShapeMode shapes;
    const c10::AutoGradMode no_gradients(false);
    return make(spec, inputs, node, true);
  }

  Made make(const LayerSpec& spec, const LayerInputs& inputs, const Graph::Node& node, bool run) {
    try {
      Made made;
      made.layer = spec.component.build(inputs);
      if (run) made.outputs = made.layer.forward(inputs.examples);
      return made;
    } catch (const ComponentError& error) {  // of a part of it, which the recipe does not list
      try {
        std::rethrow_if_nested(error);
      } catch (const std::exception& cause) {
        refuse(inputs, node, cause);
      }
      refuse(inputs, node, error);
    } catch (const std::exception& error) {
      refuse(inputs, node, error);
    }
  }

  /// Throws what `error`, which is being handled, means for a layer.
  [[noreturn]] void refuse(const LayerInputs& inputs, const Graph::Node& node, const std::exception& error) const {
    std::vector<std::string> flowing;
    for (size_t i = 0; i < inputs.num_own(); ++i) {
      flowing.push_back(shape_text(inputs.examples[i].sizes()) + " from " + sources_[node.inputs[i]]);
    }
    throw_fault(node.place, node.path, node.type + " does not fit its input " + join(flowing, " and ") + ": ", error);
  }

  void name_outputs(const LayerSpec& spec, const Tensors& outputs, Graph::Node& node) {
    const Names& wanted = spec.component.common.outputs;
    if (wanted.size() > outputs.size()) {
      throw RecipeError(
          {{place_of(spec.component, "outputs"), node.path + ".outputs",
            node.type + " has " + std::to_string(outputs.size()) + " output" + (outputs.size() == 1 ? "" : "s") +
                ", but outputs names " + std::to_string(wanted.size())}});
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      const size_t slot = add_slot(outputs[i], node.path + " (" + node.type + ", " + node.place.to_string() + ")");
      node.outputs.push_back(slot);
      node.output_shapes.push_back(outputs[i].sizes().vec());
      node.output_dtypes.push_back(outputs[i].scalar_type());
      if (i < wanted.size()) graph_->add_name(wanted[i], slot);
      if (i == 0) graph_->add_name(node.name, slot);
    }
  }

  std::shared_ptr<Graph> graph_ = std::make_shared<Graph>();
  LayerScope scope_;
  bool shapes_only_;
  bool may_be_whole_;  // the one layer may be a whole model, with Python's state names
  bool is_written_;    // the list, in the recipe
  const LayerInputs& around_;
  Tensors examples_;                  // by slot
  std::vector<std::string> sources_;  // by slot, for messages
  std::vector<std::string> names_outside_;
};

std::shared_ptr<Graph> build_graph(const LayerList& layers, const LayerInputs& inputs) {
  return GraphBuilder(layers, inputs, false).graph();
}

std::shared_ptr<Graph> build_model_graph(const LayerList& layers, const LayerInputs& inputs) {
  return GraphBuilder(layers, inputs, true).graph();
}

std::shared_ptr<Graph> LayerInputs::graph(const LayerList& layers) const { return build_graph(layers, *this); }

}  // namespace trainrun
