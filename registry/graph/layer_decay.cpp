#include "registry/graph/layer_decay.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "registry/graph/flatten.h"

namespace trainrun {
namespace {

/// Which of the flattened layers are layers to the decay, and which are containers that list such layers.
class DecayedLayers {
 public:
  explicit DecayedLayers(const FlatGraph& flat) : flat_(flat), is_one_(flat.layers.size(), false) {
    for (size_t i = 0; i < flat_.layers.size(); i = flat_.layers[i].end) visit(i, {});
  }

  bool is_one(size_t index) const { return is_one_[index]; }

 private:
  struct Around {
    bool lists_blocks = false;  // the container around it is a list of blocks
    bool is_in_model = false;   // it is a part of a registered model, whose structure is Python's
  };

  void visit(size_t index, Around around) {
    const FlatLayer& layer = flat_.layers[index];
    if (!has_parameters(index)) return;
    const bool lists_blocks = is_list_of_blocks(index);
    if (layer.is_leaf() || !is_opened(index, around, lists_blocks)) {
      is_one_[index] = true;
      return;
    }
    around = {lists_blocks, around.is_in_model || is_whole_model(layer)};
    for (const size_t child : children_of(index)) visit(child, around);
  }

  /// Whether the layers within this container count one by one.
  bool is_opened(size_t index, const Around& around, bool lists_blocks) const {
    if (lists_blocks) return true;
    if (around.lists_blocks) return false;  // a block, whatever it is made of
    if (is_whole_model(flat_.layers[index]) || holds_list_of_blocks(index)) return true;
    return lists_containers(index) || (around.is_in_model && lists_single_layers(index));
  }

  static bool is_whole_model(const FlatLayer& layer) { return !layer.is_leaf() && layer.node->layer.is_whole_model; }

  /// A list like Python's ModuleList: "0", "1", … or "encoder_layer_0", "encoder_layer_1", …, all of them containers.
  bool is_list_of_blocks(size_t index) const {
    std::set<std::string> stems;
    for (const size_t child : weighty_children_of(index)) {
      const std::optional<std::string> stem = stem_of(flat_.layers[child].node->name);
      if (flat_.layers[child].is_leaf() || !stem) return false;
      stems.insert(*stem);
    }
    return stems.size() == 1;
  }

  bool holds_list_of_blocks(size_t index) const {
    const std::vector<size_t> children = weighty_children_of(index);
    return std::any_of(children.begin(), children.end(), [&](size_t child) {
      return !flat_.layers[child].is_leaf() && (is_list_of_blocks(child) || holds_list_of_blocks(child));
    });
  }

  /// Several containers, each of which is something else: an embedding, an encoder, a pooler.
  bool lists_containers(size_t index) const {
    const std::vector<size_t> children = weighty_children_of(index);
    return children.size() > 1 &&
           std::none_of(children.begin(), children.end(), [&](size_t child) { return flat_.layers[child].is_leaf(); });
  }

  /// As VGG's features: "0", "3", "6", …, several of which have a matrix.
  bool lists_single_layers(size_t index) const {
    const std::vector<size_t> children = weighty_children_of(index);
    return std::count_if(children.begin(), children.end(), [&](size_t child) { return has_matrix(child); }) > 1 &&
           std::all_of(children.begin(), children.end(), [&](size_t child) {
             return flat_.layers[child].is_leaf() && stem_of(flat_.layers[child].node->name) == "";
           });
  }

  /// What comes before the number at the end of a name, if one is there.
  static std::optional<std::string> stem_of(const std::string& name) {
    const size_t last = name.find_last_not_of("0123456789");
    const size_t length = last == std::string::npos ? 0 : last + 1;
    if (length == name.size()) return std::nullopt;
    return name.substr(0, length);
  }

  bool has_parameters(size_t index) const {
    const auto& state = flat_.layers[index].node->layer.state;
    return state && !state->parameters().empty();
  }

  bool has_matrix(size_t index) const {
    const Tensors parameters = flat_.layers[index].node->layer.state->parameters();
    return std::any_of(parameters.begin(), parameters.end(), [](const at::Tensor& tensor) { return tensor.dim() > 1; });
  }

  std::vector<size_t> children_of(size_t index) const {
    std::vector<size_t> children;
    for (size_t i = index + 1; i < flat_.layers[index].end; i = flat_.layers[i].end) children.push_back(i);
    return children;
  }

  /// Those with parameters.
  std::vector<size_t> weighty_children_of(size_t index) const {
    std::vector<size_t> children = children_of(index);
    std::erase_if(children, [&](size_t child) { return !has_parameters(child); });
    return children;
  }

  const FlatGraph& flat_;
  std::vector<bool> is_one_;
};

/// How many layers are above each parameter, from the outputs of the model down to its inputs.
class Heights {
 public:
  explicit Heights(const FlatGraph& flat) : flat_(flat), layers_(flat), above_(flat.num_slots, 0) {
    find_owners();
    for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) pass(*step);
  }

  /// Nothing for a parameter that no layer computes with.
  std::optional<int64_t> of(const at::Tensor& parameter) const {
    const auto found = heights_.find(parameter.unsafeGetTensorImpl());
    if (found == heights_.end()) return std::nullopt;
    return std::min(found->second, highest_);  // a normalization of the inputs belongs to the first layer
  }

 private:
  /// A parameter that layers share belongs to the first of them.
  void find_owners() {
    std::set<const at::TensorImpl*> seen;
    for (size_t i = 0; i < flat_.layers.size();) {
      const FlatLayer& layer = flat_.layers[i];
      Step step{i, {}};
      if (layers_.is_one(i)) {
        for (const at::Tensor& parameter : layer.node->layer.state->parameters()) {
          if (seen.insert(parameter.unsafeGetTensorImpl()).second) step.own.push_back(parameter);
        }
      }
      const bool is_opened = !layer.is_leaf() && !layers_.is_one(i);
      if (!is_opened) steps_.push_back(std::move(step));
      i = is_opened ? i + 1 : layer.end;
    }
  }

  /// What computes as one, and the parameters that it is the first to use.
  struct Step {
    size_t layer;
    Tensors own;
  };

  void pass(const Step& step) {
    const FlatLayer& layer = flat_.layers[step.layer];
    int64_t height = 0;
    for (const size_t slot : layer.outputs) height = std::max(height, above_[slot]);
    for (const at::Tensor& parameter : step.own) heights_[parameter.unsafeGetTensorImpl()] = height;
    const bool counts = has_weights_of_its_own(step);
    if (counts) highest_ = std::max(highest_, height);
    for (const size_t slot : layer.inputs) above_[slot] = std::max(above_[slot], height + (counts ? 1 : 0));
  }

  /// What has only vectors (a normalization), or is a free parameter (a class token), belongs to what it follows.
  bool has_weights_of_its_own(const Step& step) const {
    if (flat_.layers[step.layer].node->layer.is_parameter) return false;
    return std::any_of(step.own.begin(), step.own.end(), [](const at::Tensor& tensor) { return tensor.dim() > 1; });
  }

  const FlatGraph& flat_;
  DecayedLayers layers_;
  std::vector<Step> steps_;
  std::vector<int64_t> above_;  // by slot: layers between what flows there and the outputs
  std::map<const at::TensorImpl*, int64_t> heights_;
  int64_t highest_ = 0;
};

}  // namespace

std::map<std::string, double> layer_decay_scales(const Graph& graph, double decay) {
  const FlatGraph flat = flatten(graph);
  const Heights heights(flat);
  std::map<std::string, double> scales;
  for (const auto& item : graph.named_parameters()) {
    const std::optional<int64_t> height = heights.of(item.value());
    if (height) scales[item.key()] = std::pow(decay, static_cast<double>(*height));
  }
  return scales;
}

}  // namespace trainrun
