#include "registry/graph/onnx_walk.h"

#include <algorithm>

#include "registry/graph/flatten.h"
#include "registry/language/error.h"

namespace trainrun {
namespace {

/// Writes the layers of a graph one by one.
class OnnxWalk {
 public:
  OnnxWalk(const Graph& graph, const std::vector<OnnxForm::Input>& inputs, const NamedTensors& state)
      : flat_(flatten(graph)), result_(state), values_(flat_.num_slots) {
    std::copy(inputs.begin(), inputs.end(), values_.begin());
    for (const OnnxForm::Input& input : inputs) result_.add_input(input.value);
  }

  OnnxGraph take() {
    const std::vector<bool> is_needed = needed();
    for (size_t i = 0; i < flat_.layers.size(); ++i) {
      if (is_needed[i]) write(flat_.layers[i]);
    }
    if (!problems_.empty()) throw RecipeError(std::move(problems_));
    for (size_t i = 0; i < flat_.outputs.size(); ++i) {
      result_.add_output(values_[flat_.outputs[i]].value, i == 0 ? "output" : "output_" + std::to_string(i));
    }
    result_.prune();
    return std::move(result_);
  }

 private:
  /// Of each layer: whether it computes something that leads to an output.
  std::vector<bool> needed() {
    std::vector<bool> result(flat_.layers.size());
    read_.resize(flat_.num_slots);
    for (const size_t slot : flat_.outputs) read_[slot] = true;
    for (size_t i = flat_.layers.size(); i-- > 0;) {
      const FlatLayer& layer = flat_.layers[i];
      const auto is_read = [&](size_t slot) { return read_[slot]; };
      if (!layer.is_leaf() || std::none_of(layer.outputs.begin(), layer.outputs.end(), is_read)) continue;
      result[i] = true;
      for (const size_t slot : layer.inputs) read_[slot] = true;
    }
    return result;
  }

  void write(const FlatLayer& layer) {
    const Graph::Node& node = *layer.node;
    if (!node.own.has_onnx()) {
      return refuse(layer, node.type + " has no form in ONNX. " + advice());
    }
    try {
      OnnxForm form(result_, layer.name, inputs_of(layer), node.output_dtypes);
      node.own.onnx(form);
      for (size_t i = 0; i < layer.outputs.size(); ++i) {
        const bool is_given = i < form.given().size() && !form.given()[i].name.empty();
        if (!is_given && read_[layer.outputs[i]]) {
          throw Error("its output " + std::to_string(i) + " has no form");
        }
        values_[layer.outputs[i]] = {is_given ? form.given()[i] : OnnxValue(), node.output_shapes[i],
                                     node.output_dtypes[i]};
      }
    } catch (const std::exception& error) {
      refuse(layer, node.type + " cannot be written as ONNX: " + error.what() + ". " + advice());
    }
  }

  static std::string advice() {
    return "Export the run with --format torchscript or safetensors, or write the layer as others; a plugin's layer "
           "can have a member `void onnx(OnnxForm&) const`";
  }

  std::vector<OnnxForm::Input> inputs_of(const FlatLayer& layer) const {
    std::vector<OnnxForm::Input> inputs;
    for (const size_t slot : layer.inputs) inputs.push_back(values_[slot]);
    return inputs;
  }

  void refuse(const FlatLayer& layer, const std::string& message) {
    const Graph::Node& written = *layer.written;
    const std::string within = &written == layer.node ? "" : " (in " + layer.name + ")";
    problems_.push_back({written.place, written.path, message + within});
    for (size_t i = 0; i < layer.outputs.size(); ++i) {  // so that layers after it are looked at, too
      values_[layer.outputs[i]] = {{"?"}, layer.node->output_shapes[i], layer.node->output_dtypes[i]};
    }
  }

  FlatGraph flat_;
  OnnxGraph result_;
  std::vector<OnnxForm::Input> values_;  // by slot
  std::vector<bool> read_;               // by slot
  std::vector<Problem> problems_;
};

}  // namespace

OnnxGraph onnx_graph_of(const Graph& graph, const std::vector<OnnxForm::Input>& inputs, const NamedTensors& state) {
  return OnnxWalk(graph, inputs, state).take();
}

}  // namespace trainrun
