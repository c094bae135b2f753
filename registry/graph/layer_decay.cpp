#include "registry/graph/layer_decay.h"

#include <algorithm>
#include <cmath>

#include "registry/graph/flatten.h"
#include "registry/layers/free_parameter.h"

namespace trainrun {
namespace {

/// Numbers the layers from the first to the last.
class Numbering {
 public:
  explicit Numbering(const FlatGraph& flat) : flat_(flat) {
    for (size_t i = 0; i < flat_.layers.size(); i = flat_.layers[i].end) visit(i, false);
  }

  /// By parameter; one that layers share has the number of the first.
  const std::map<const at::TensorImpl*, int64_t>& numbers() const { return numbers_; }
  int64_t last() const { return std::max<int64_t>(current_, 0); }

 private:
  /// `is_element`: of a list of containers.
  void visit(size_t index, bool is_element) {
    const FlatLayer& layer = flat_.layers[index];
    const Tensors parameters = parameters_of(layer);
    if (parameters.empty()) return;
    if (layer.is_leaf()) {
      const bool belongs_to_last =
          dynamic_cast<const FreeParameter*>(layer.node->layer.state.get()) ||
          std::all_of(parameters.begin(), parameters.end(), [](const at::Tensor& tensor) { return tensor.dim() < 2; });
      if (!belongs_to_last) begin_layer();
      return assign(parameters);
    }
    const bool is_list = lists_containers(index);
    if (is_list || !layer.node->adds_prefix || (!is_element && holds_list(index))) {
      for (const size_t child : children_of(index)) visit(child, is_list);
      return;
    }
    begin_layer();
    assign(parameters);
  }

  void begin_layer() {
    if (current_ < 0 || has_own_) ++current_;
    has_own_ = true;
  }

  void assign(const Tensors& parameters) {
    current_ = std::max<int64_t>(current_, 0);
    for (const at::Tensor& parameter : parameters) numbers_.try_emplace(parameter.unsafeGetTensorImpl(), current_);
  }

  /// Whether it has several layers with parameters, and all of those are containers.
  bool lists_containers(size_t index) const {
    size_t num_containers = 0;
    for (const size_t child : children_of(index)) {
      if (parameters_of(flat_.layers[child]).empty()) continue;
      if (flat_.layers[child].is_leaf()) return false;
      ++num_containers;
    }
    return num_containers > 1;
  }

  bool holds_list(size_t index) const {
    const std::vector<size_t> children = children_of(index);
    return std::any_of(children.begin(), children.end(), [&](size_t child) {
      return !flat_.layers[child].is_leaf() && (lists_containers(child) || holds_list(child));
    });
  }

  std::vector<size_t> children_of(size_t index) const {
    std::vector<size_t> children;
    for (size_t i = index + 1; i < flat_.layers[index].end; i = flat_.layers[i].end) children.push_back(i);
    return children;
  }

  static Tensors parameters_of(const FlatLayer& layer) {
    return layer.node->layer.state ? layer.node->layer.state->parameters() : Tensors();
  }

  const FlatGraph& flat_;
  std::map<const at::TensorImpl*, int64_t> numbers_;
  int64_t current_ = -1;
  bool has_own_ = false;  // the current layer has more than what belongs to a layer before it
};

}  // namespace

std::map<std::string, double> layer_decay_scales(const Graph& graph, double decay) {
  const FlatGraph flat = flatten(graph);
  const Numbering numbering(flat);
  std::map<std::string, double> scales;
  for (const auto& item : graph.named_parameters()) {
    const auto number = numbering.numbers().find(item.value().unsafeGetTensorImpl());
    if (number == numbering.numbers().end()) continue;
    scales[item.key()] = std::pow(decay, static_cast<double>(numbering.last() - number->second));
  }
  return scales;
}

}  // namespace trainrun
