#include "registry/models/listing.h"

#include <c10/core/GradMode.h>

#include <algorithm>

#include "registry/graph/flatten.h"
#include "registry/graph/shape_mode.h"
#include "registry/models/families.h"

namespace trainrun {
namespace {

using nlohmann::json;

/// As a recipe's value, at no place.
Value value_of(const json& written) {
  if (written.is_null()) return Value::null({});
  if (written.is_string()) return Value::scalar(written.get<std::string>(), true, {});
  if (written.is_object()) {
    std::vector<Value::Entry> entries;
    for (const auto& [key, item] : written.items()) entries.push_back({key, {}, value_of(item)});
    return Value::map(std::move(entries), {});
  }
  if (written.is_array()) {
    std::vector<Value> items;
    for (const json& item : written) items.push_back(value_of(item));
    return Value::list(std::move(items), {});
  }
  return Value::scalar(written.dump(), false, {});
}

/// What a recipe that said this would come to. Listings are part of the program: a fault in one is a fault of ours.
template <class T>
T read_listed(const json& written) {
  std::vector<Problem> problems;
  Reader reader(builtin_catalog(), problems);
  auto read = Codec<T>::read(value_of(written), reader);
  if (!read || !problems.empty()) {
    throw Error("a registered model lists " + written.dump() + ": " + (problems.empty() ? "" : problems[0].message));
  }
  return std::move(*read);
}

}  // namespace

Listing::Listing(const std::string& input) {
  list_.is_written = false;
  list_.input_names = {input};
}

Listing& Listing::add(const std::string& type, const json& parameters) {
  json written = parameters;
  written["type"] = type;
  append(read_listed<Component<LayerKind>>(written), parameters.contains("name"));
  return *this;
}

Listing& Listing::add(Listing layers, const std::string& name, Names inputs, const json& init) {
  Component<LayerKind> component;
  component.type = "Sequential";
  component.attributes = {{"layers", Codec<LayerList>::write(layers.list_)}};
  if (!name.empty()) component.common.name = name;
  component.common.inputs = std::move(inputs);
  if (!init.is_null()) component.common.init = read_listed<InitializerRules>(init);
  component.build = [list = std::make_shared<const LayerList>(std::move(layers.list_))](const LayerInputs& in) {
    return Layer(in.graph(*list));
  };
  append(std::move(component), !name.empty());
  return *this;
}

void Listing::append(Component<LayerKind> component, bool is_named) {
  std::string name = is_named ? *component.common.name : std::to_string(size());
  list_.layers.push_back({std::move(name), std::move(component), {}});
}

void draw_weights(const Graph& graph, const Draw& convolution, const Draw& linear) {
  if (ShapeMode::active()) return;
  const c10::AutoGradMode no_gradients(false);
  for (const FlatLayer& layer : flatten(graph).layers) {
    const bool is_convolution = layer.node->type == "Conv2d";
    if (!layer.is_leaf() || (!is_convolution && layer.node->type != "Linear")) continue;
    const Draw& draw_weight = is_convolution ? convolution : linear;
    if (!draw_weight) continue;
    for (const auto& item : layer.node->layer.state->named_parameters()) {
      if (item.key() == "weight") {
        draw_weight(item.value());
      } else {
        item.value().zero_();
      }
    }
  }
}

Draw draw(const json& initializer) { return read_listed<Component<InitializerKind>>(initializer).build({}); }

Layer whole_model(std::shared_ptr<Graph> graph) {
  Layer layer(std::move(graph));
  layer.is_whole_model = true;
  return layer;
}

Listing ConvNormActivation::listing() const {
  Listing layers;
  layers.add("Conv2d", {{"out_channels", channels},
                        {"kernel_size", kernel_size},
                        {"stride", stride},
                        {"padding", (kernel_size - 1) / 2},
                        {"groups", groups},
                        {"bias", false}});
  layers.add("BatchNorm2d", norm);
  if (!activation.empty()) layers.add(activation);
  return layers;
}

Listing squeeze_excitation(int64_t channels, int64_t squeezed, const std::string& activation, const std::string& gate) {
  Listing layers;
  layers.add("AdaptiveAvgPool2d", {{"name", "avgpool"}, {"output_size", 1}});
  layers.add("Conv2d", {{"name", "fc1"}, {"out_channels", squeezed}, {"kernel_size", 1}});
  layers.add(activation, {{"name", "activation"}});
  layers.add("Conv2d", {{"name", "fc2"}, {"out_channels", channels}, {"kernel_size", 1}});
  layers.add(gate, {{"name", "scale_activation"}});
  layers.add("Mul", {{"name", "scaled"}, {"inputs", {"scale_activation", "x"}}});
  return layers;
}

int64_t divisible_by_8(double channels) {
  const int64_t rounded = std::max<int64_t>(8, static_cast<int64_t>(channels + 4) / 8 * 8);
  return static_cast<double>(rounded) < 0.9 * channels ? rounded + 8 : rounded;
}

}  // namespace trainrun
