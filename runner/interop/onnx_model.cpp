#include "runner/interop/onnx_model.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>
#include <optional>

#include "registry/graph/flatten.h"
#include "registry/graph/onnx_walk.h"
#include "registry/graph/shape_mode.h"

namespace trainrun {
namespace {

using Shapes = std::vector<std::vector<int64_t>>;

/// What a build of the model tells of it.
struct Built {
  std::shared_ptr<Graph> graph;
  std::map<std::string, std::vector<std::vector<int64_t>>> layer_inputs;  // shapes, by layers' state names
  Shapes parameters;
  Shapes outputs;
};

Built built_for(const GraphFor& build, const LayerInputs& inputs, const Shapes& shapes) {
  const ShapeMode mode;
  const c10::AutoGradMode no_gradients(false);
  LayerInputs own = inputs;
  for (size_t i = 0; i < shapes.size(); ++i) {
    own.examples[i] = at::empty(shapes[i], inputs.examples[i].scalar_type());
  }
  Built result;
  result.graph = build(own);
  for (const FlatLayer& layer : flatten(*result.graph).layers) {
    if (layer.is_leaf()) result.layer_inputs[layer.name] = layer.node->input_shapes;
  }
  for (const auto& item : result.graph->named_parameters()) result.parameters.push_back(item.value().sizes().vec());
  for (const auto& item : result.graph->named_buffers()) result.parameters.push_back(item.value().sizes().vec());
  for (const at::Tensor& output : result.graph->example_outputs()) result.outputs.push_back(output.sizes().vec());
  return result;
}

/// Dimensions of inputs that are one: those at the same place that have the same size.
struct SizeGroup {
  size_t dim;
  int64_t size;
  std::string name;
  std::optional<int64_t> other = std::nullopt;  // a size for which the model serves as well
};

/// What dimension `dim` of an input of `rank` dimensions is called where it may have any size.
std::string dimension_name(size_t rank, size_t dim) {
  if (dim == 0) return "batch";
  if (rank == 4 && dim >= 2) return dim == 2 ? "height" : "width";
  if (rank == 5 && dim >= 2) return dim == 2 ? "depth" : dim == 3 ? "height" : "width";
  return "length";
}

std::vector<SizeGroup> groups_of(const Shapes& shapes) {
  std::vector<SizeGroup> groups;
  std::map<std::string, int> counts;
  for (const std::vector<int64_t>& shape : shapes) {
    for (size_t dim = 0; dim < shape.size(); ++dim) {
      const auto is_same = [&](const SizeGroup& group) { return group.dim == dim && group.size == shape[dim]; };
      if (std::any_of(groups.begin(), groups.end(), is_same)) continue;
      std::string name = dimension_name(shape.size(), dim);
      const int before = counts[name]++;
      groups.push_back({dim, shape[dim], before == 0 ? name : name + "_" + std::to_string(before + 1)});
    }
  }
  return groups;
}

/// The shapes with other sizes in the groups that have one.
Shapes changed(Shapes shapes, const std::vector<SizeGroup>& groups) {
  for (std::vector<int64_t>& shape : shapes) {
    const std::vector<int64_t> before = shape;
    for (const SizeGroup& group : groups) {
      if (group.other && group.dim < shape.size() && before[group.dim] == group.size) shape[group.dim] = *group.other;
    }
  }
  return shapes;
}

/// Finds which sizes may be others.
class OpenSizes {
 public:
  OpenSizes(const GraphFor& build, const LayerInputs& inputs, const Built& base, const OnnxGraph& graph)
      : build_(build), inputs_(inputs), base_(base), graph_(graph) {}

  /// `groups`, each with another size where it may have one; what the model is then.
  std::optional<Built> find(const Shapes& shapes, std::vector<SizeGroup>& groups) const {
    for (SizeGroup& group : groups) {
      for (const int64_t other : {2 * group.size, group.size + 1, group.size / 2, group.size - 1}) {
        if (other < 1) continue;
        SizeGroup tried = group;
        tried.other = other;
        const std::optional<Built> found = built(changed(shapes, {tried}));
        if (!found) continue;
        if (keeps_fixed_sizes(*found)) group.other = other;
        break;  // where a larger size changes what is fixed, a slightly larger one may not, but is no answer
      }
    }
    std::optional<Built> result = serves(changed(shapes, groups));
    for (SizeGroup& group : groups) {  // each by itself, but not all of them at once
      if (!result && group.dim != 0) group.other.reset();
    }
    return result ? std::move(result) : serves(changed(shapes, groups));
  }

 private:
  std::optional<Built> serves(const Shapes& shapes) const {
    std::optional<Built> found = built(shapes);
    return found && keeps_fixed_sizes(*found) ? std::move(found) : std::nullopt;
  }

  /// The model for these shapes, if it fits them with the same weights.
  std::optional<Built> built(const Shapes& shapes) const {
    std::optional<Built> found;
    try {
      found = built_for(build_, inputs_, shapes);
    } catch (const std::exception&) {  // it does not fit: that is the answer
      return std::nullopt;
    }
    if (found->parameters != base_.parameters || found->layer_inputs.size() != base_.layer_inputs.size()) {
      return std::nullopt;
    }
    return found;
  }

  bool keeps_fixed_sizes(const Built& found) const {
    for (const OnnxGraph::FixedSize& fixed : graph_.fixed_sizes()) {
      const auto layer = found.layer_inputs.find(fixed.layer);
      if (layer == found.layer_inputs.end() || layer->second[fixed.input][fixed.dim] != fixed.size) return false;
    }
    return true;
  }

  const GraphFor& build_;
  const LayerInputs& inputs_;
  const Built& base_;
  const OnnxGraph& graph_;
};

/// The name of the input's size that an output's follows, which is `size`, and `other` where that one is.
std::string size_name(const std::vector<SizeGroup>& groups, size_t dim, int64_t size, int64_t other) {
  for (const bool same_place : {true, false}) {
    for (const SizeGroup& group : groups) {
      if (group.other == other && group.size == size && (!same_place || group.dim == dim)) return group.name;
    }
  }
  return "";  // open, without a name
}

}  // namespace

OnnxModel onnx_model_of(const GraphFor& build, const LayerInputs& inputs, const NamedTensors& state) {
  Shapes shapes;
  for (const at::Tensor& example : inputs.examples) shapes.push_back(example.sizes().vec());
  const Built base = built_for(build, inputs, shapes);
  std::vector<OnnxForm::Input> given;
  for (size_t i = 0; i < shapes.size(); ++i) {
    given.push_back({{inputs.names.at(i)}, shapes[i], inputs.examples[i].scalar_type()});
  }
  OnnxModel model = {onnx_graph_of(*base.graph, given, state), {}, {}};
  std::vector<SizeGroup> groups = groups_of(shapes);
  const std::optional<Built> other = OpenSizes(build, inputs, base, model.graph).find(shapes, groups);
  std::set<std::string> read;
  for (const OnnxNode& node : model.graph.nodes()) {
    for (const OnnxValue& input : node.inputs) read.insert(input.name);
  }
  for (const OnnxForm::Input& input : given) {
    if (!read.contains(input.value.name)) continue;
    OnnxTensor tensor = {input.value.name, input.dtype, {}};
    for (size_t dim = 0; dim < input.shape.size(); ++dim) {
      const auto group = std::find_if(groups.begin(), groups.end(), [&](const SizeGroup& own) {
        return own.dim == dim && own.size == input.shape[dim];
      });
      tensor.shape.push_back(group->other ? OnnxSize(group->name) : OnnxSize(input.shape[dim]));
    }
    model.inputs.push_back(std::move(tensor));
  }
  const Tensors outputs = base.graph->example_outputs();
  for (size_t i = 0; i < outputs.size(); ++i) {
    OnnxTensor tensor = {model.graph.outputs()[i].name, outputs[i].scalar_type(), {}};
    for (size_t dim = 0; dim < base.outputs[i].size(); ++dim) {
      const int64_t size = base.outputs[i][dim];
      const int64_t changed_size = other ? other->outputs[i][dim] : size;
      tensor.shape.push_back(size == changed_size ? OnnxSize(size)
                                                  : OnnxSize(size_name(groups, dim, size, changed_size)));
    }
    model.outputs.push_back(std::move(tensor));
  }
  return model;
}

}  // namespace trainrun
