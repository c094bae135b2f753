#include "registry/kinds/layer.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <set>
#include <unordered_map>

#include "registry/kinds/batch_fields.h"
#include "registry/language/interpolation.h"

namespace trainrun {
namespace {

/// "; write inputs: [NAME, NAME], with names of earlier layers or of fields of the batch"
std::string inputs_advice(size_t count) {
  return "; write inputs: [" + join(std::vector<std::string>(count, "NAME")) +
         "], with names of earlier layers or of fields of the batch";
}

constexpr int kMaxDepth = 32;           // layers within layers
constexpr int64_t kMaxLayers = 100000;  // of one recipe, after `repeat` and blocks

/// A named piece of the recipe, used as a layer: its own list of layers under one name.
struct Block {
  LayerList layers;
  static void describe(Fields<Block>& f) { f.required("layers", &Block::layers); }
  Layer build(const LayerInputs& in) const { return in.graph(layers); }
};

/// Reads the layers of a list in order, and knows which names they may use.
class ListReader {
 public:
  explicit ListReader(Reader& reader) : reader_(reader) {}

  LayerList read(const Value& list, std::vector<std::string> input_names) {
    LayerList result;
    result.input_names = std::move(input_names);
    known_.insert(result.input_names.begin(), result.input_names.end());
    for (size_t i = 0; i < list.items().size(); ++i) {
      const auto scope = reader_.enter(i);
      read_layer(list.items()[i], result);
    }
    return result;
  }

  const std::set<std::string>& free_names() const { return free_; }

 private:
  void read_layer(const Value& written, LayerList& result) {
    const std::vector<std::string> outside = std::exchange(reader_.free_names, {});
    auto component = read_component(written);
    std::vector<std::string> captures = std::exchange(reader_.free_names, outside);
    if (!component || !component->common.enabled) return;
    if (component->common.inputs.empty()) add_batch_fields(*component, captures);
    std::sort(captures.begin(), captures.end());
    captures.erase(std::unique(captures.begin(), captures.end()), captures.end());
    const auto use = [&](const std::string& name) {
      if (!known_.contains(name)) free_.insert(name);
    };
    std::for_each(component->common.inputs.begin(), component->common.inputs.end(), use);
    std::for_each(captures.begin(), captures.end(), use);
    const LayerCommon common = component->common;
    const std::string prefix = common.name && common.repeat > 1 ? *common.name + "." : "";
    if (!prefix.empty()) return add_repeated(*component, captures, result);
    for (int64_t i = 0; i < common.repeat && count_layer(written); ++i) {
      LayerSpec spec{common.name.value_or(std::to_string(result.layers.size())), *component, captures};
      if (i > 0) follow(result.layers.back().name, common.inputs, spec.component.common.inputs);
      if (i + 1 < common.repeat) spec.component.common.outputs.clear();  // the last one's are named
      add(std::move(spec), result);
    }
  }

  /// Adds the fields that a registered layer asks for by their names.
  void add_batch_fields(const Component<LayerKind>& component, std::vector<std::string>& names) const {
    const auto* entry = registry_of(reader_.catalog(), LayerKind()).find(component.type);
    if (!entry) return;
    for (const Parameter& parameter : entry->parameters) {
      if (parameter.type != Codec<BatchFields>::type_name()) continue;
      for (const nlohmann::json& name : component.attributes.at(parameter.name)) names.push_back(name);
    }
  }

  /// The inputs of a repeated layer after its first: what the one before it gives, and whatever else all of them read.
  static void follow(const std::string& before, const std::vector<std::string>& first, Names& inputs) {
    inputs.assign(first.begin(), first.end());
    if (first.size() > 1) {
      inputs[0] = before;
    } else {
      inputs.clear();
    }
  }

  /// `{type: basic, name: layer1, repeat: 2}` is a list of two layers under one name: layer1.0, layer1.1.
  void add_repeated(const Component<LayerKind>& component, const std::vector<std::string>& captures,
                    LayerList& result) {
    auto block = std::make_shared<Block>();
    const bool several = component.common.inputs.size() > 1;
    std::vector<std::string>& names = block->layers.input_names;  // a dot is in no name that a recipe gives
    for (size_t i = 0; several && i < component.common.inputs.size(); ++i)
      names.push_back("input." + std::to_string(i));
    for (int64_t i = 0; i < component.common.repeat && count_layer(component.written); ++i) {
      LayerSpec spec{std::to_string(i), component, captures};
      spec.component.common = LayerCommon();
      spec.component.common.share = component.common.share;
      if (several && i == 0) spec.component.common.inputs.assign(names.begin(), names.end());
      if (several && i > 0) follow(std::to_string(i - 1), names, spec.component.common.inputs);
      block->layers.layers.push_back(std::move(spec));
    }
    LayerSpec spec{component.common.name.value_or(""), component, captures};
    spec.component.common.repeat = 1;
    spec.component.common.share.reset();  // each of the layers shares
    set_block(spec.component, std::move(block));
    add(std::move(spec), result);
  }

  static void set_block(Component<LayerKind>& component, std::shared_ptr<const Block> block) {
    component.options_type = &typeid(Block);
    component.form = nullptr;
    component.attributes = nlohmann::json::object();
    component.build = [block](const LayerInputs& inputs) { return block->build(inputs); };
    component.options = std::move(block);
  }

  void add(LayerSpec spec, LayerList& result) {
    const auto [other, is_new] = lines_.emplace(spec.name, spec.component.place.line);
    if (!is_new) {
      const Value* name = spec.component.written.find("name");
      const auto scope = reader_.enter(name ? "name" : "");
      reader_.error(name ? name->place() : spec.component.place,
                    "the name '" + spec.name + "' is taken by the layer on line " + std::to_string(other->second));
      return;
    }
    known_.insert(spec.name);
    known_.insert(spec.component.common.outputs.begin(), spec.component.common.outputs.end());
    result.layers.push_back(std::move(spec));
  }

  bool count_layer(const Value& written) {
    if (++reader_.num_layers_read <= kMaxLayers) return true;
    if (reader_.num_layers_read == kMaxLayers + 1) {
      reader_.error(written.place(), "more than " + std::to_string(kMaxLayers) + " layers");
    }
    return false;
  }

  std::optional<Component<LayerKind>> read_component(const Value& written) {
    const Value* block = find_block(written);
    if (reader_.num_layers_read > kMaxLayers) return std::nullopt;  // too many, or too deep: said once
    if (reader_.layer_depth >= kMaxDepth) {
      reader_.num_layers_read = kMaxLayers + 1;
      reader_.error(written.place(),
                    "layers are nested more than " + std::to_string(kMaxDepth) + " deep; does a block use itself?");
      return std::nullopt;
    }
    ++reader_.layer_depth;
    auto component = block ? read_block(written, *block) : read_registered(written);
    --reader_.layer_depth;
    return component;
  }

  /// The body of the block that `written` uses, or nullptr. A block with the name of a layer was reported, and is none.
  const Value* find_block(const Value& written) const {
    const Value* type = written.is_map() ? written.find("type") : &written;
    if (!reader_.blocks || !type || !type->is_scalar()) return nullptr;
    const bool registered = registry_of(reader_.catalog(), LayerKind()).find(type->text()) != nullptr;
    return registered ? nullptr : reader_.blocks->find(type->text());
  }

  std::optional<Component<LayerKind>> read_registered(const Value& written) {
    const Value* type = written.is_map() ? written.find("type") : &written;
    const bool named = type && type->is_scalar() && type->scalar_type() == ScalarType::kString;
    if (named && !registry_of(reader_.catalog(), LayerKind()).find(type->text()) && reader_.blocks) {
      std::vector<std::string> names = registry_of(reader_.catalog(), LayerKind()).names();
      for (const Value::Entry& entry : reader_.blocks->entries()) names.push_back(entry.key);
      detail::report_unknown(written, LayerKind::kName, type->text(), names, reader_);
      return std::nullopt;
    }
    return Codec<Component<LayerKind>>::read(written, reader_);
  }

  std::optional<Component<LayerKind>> read_block(const Value& written, const Value& body) {
    const size_t before = reader_.problems().size();
    const Value map = detail::component_map(written);
    Component<LayerKind> component;
    component.type = map.find("type")->text();
    component.place = written.place();
    component.path = reader_.path();
    component.written = written;
    if (is_open(component.type)) {
      reader_.error(map.find("type")->place(), "the block " + component.type + " uses itself: " +
                                                   join(reader_.open_blocks, " -> ") + " -> " + component.type);
      return std::nullopt;
    }
    const auto parameters = block_parameters(component.type, map, body, component);
    if (!parameters) return std::nullopt;
    const size_t num_problems = reader_.problems().size();
    const Value expanded = substitute_parameters(body, *parameters);
    if (reader_.problems().size() != num_problems) return std::nullopt;  // what was not put in would be a second fault
    const Value* layers = expanded.find("layers");
    if (!layers || !layers->is_list()) return std::nullopt;  // reported where the block is defined
    auto block = std::make_shared<Block>();
    Names input_names;
    if (const Value* inputs = body.find("inputs")) input_names = Codec<Names>::read(*inputs, reader_).value_or(Names());
    {
      reader_.open_blocks.push_back(component.type);
      const auto scope = reader_.enter("layers");
      ListReader inner(reader_);
      block->layers = inner.read(*layers, input_names);
      reader_.open_blocks.pop_back();
      reader_.free_names.insert(reader_.free_names.end(), inner.free_names().begin(), inner.free_names().end());
    }
    if (!input_names.empty() && std::max<size_t>(1, component.common.inputs.size()) != input_names.size()) {
      reader_.error(written.place(), "the block " + component.type + " reads " + std::to_string(input_names.size()) +
                                         " inputs (" + join(input_names) + "), but gets " +
                                         std::to_string(std::max<size_t>(1, component.common.inputs.size())) +
                                         inputs_advice(input_names.size()));
    }
    set_block(component, std::move(block));
    if (reader_.problems().size() != before) return std::nullopt;
    return component;
  }

  bool is_open(const std::string& block) const {
    return std::find(reader_.open_blocks.begin(), reader_.open_blocks.end(), block) != reader_.open_blocks.end();
  }

  Value substitute_parameters(const Value& body, const std::map<std::string, Value>& parameters) {
    std::vector<Problem> problems;
    Value expanded = substitute(body, parameters, &problems);
    for (const Problem& problem : problems) reader_.error(problem.place, problem.message);
    return expanded;
  }

  /// The values of a block's parameters at one use, or nothing where some are missing; what every layer may say goes to
  /// `component.common`.
  std::optional<std::map<std::string, Value>> block_parameters(const std::string& type, const Value& use,
                                                               const Value& body, Component<LayerKind>& component) {
    std::map<std::string, Value> values;
    std::vector<std::string> names;
    std::vector<std::string> near;  // what misspelled parameters may mean: one fault, one error
    bool missing = false;
    const Value* declared = body.find("parameters");
    if (declared && declared->is_map()) {
      for (const Value::Entry& entry : declared->entries()) {
        names.push_back(entry.key);
        values[entry.key] = entry.value;
      }
    }
    Value common = Value::map({}, use.place());
    for (const Value::Entry& entry : use.entries()) {
      if (entry.key == "type") continue;
      if (values.contains(entry.key)) {
        values[entry.key] = entry.value;
      } else if (is_common(entry.key)) {
        common.set(entry.key, entry.key_place, entry.value);
      } else {
        const auto scope = reader_.enter(entry.key);
        std::vector<std::string> unused;
        for (const std::string& name : names) {
          if (!use.find(name)) unused.push_back(name);
        }
        near.push_back(nearest(entry.key, unused));
        reader_.error(entry.key_place, "unknown parameter of the block " + type + suggestion(entry.key, unused));
      }
    }
    for (const auto& [name, value] : values) {
      const bool null = value.is_null() || (value.is_scalar() && value.scalar_type() == ScalarType::kNull);
      if (!null || use.find(name)) continue;
      missing = true;
      const bool misspelled = std::find(near.begin(), near.end(), name) != near.end();
      if (!misspelled) reader_.error(use.place(), "the block " + type + " needs " + name);
    }
    component.common = Codec<LayerCommon>::fields().read(common, reader_, type);
    return missing ? std::nullopt : std::optional(values);
  }

  static bool is_common(const std::string& key) {
    const auto parameters = Codec<LayerCommon>::fields().parameters();
    return std::any_of(parameters.begin(), parameters.end(), [&](const Parameter& known) { return known.name == key; });
  }

  Reader& reader_;
  std::unordered_map<std::string, int> lines_;  // of the layers read so far, by name
  std::set<std::string> known_;
  std::set<std::string> free_;
};

}  // namespace

void tie_weight(torch::nn::Module& module, at::Tensor& weight, const std::string& name, const at::Tensor& tensor) {
  /// A module's own list of its parameters, which only modules themselves may change.
  struct Access : torch::nn::Module {
    static at::Tensor& parameter(torch::nn::Module& module, const std::string& name) {
      return (module.*(&Access::parameters_))[name];
    }
  };
  TORCH_CHECK(name == "weight", "only the weight can be tied");
  weight = tensor;
  Access::parameter(module, name) = tensor;
}

at::IntArrayRef LayerInputs::shape(size_t i) const {
  if (i >= examples.size()) throw LayerError("it needs " + std::to_string(i + 1) + " inputs");
  return examples[i].sizes();
}

int64_t LayerInputs::infer(const std::string& parameter, const std::optional<int64_t>& given, int64_t dim) const {
  note_inferred(parameter);
  const at::IntArrayRef sizes = shape();
  const auto rank = static_cast<int64_t>(sizes.size());
  const int64_t position = dim < 0 ? rank + dim : dim;
  if (position < 1 || position >= rank) {
    throw LayerError(parameter + " cannot follow from " + shape_text(sizes) + ": too few dimensions");
  }
  if (given && *given != sizes[position]) {
    throw LayerError(parameter + " is " + std::to_string(*given) + ", but the input has " +
                     std::to_string(sizes[position]));
  }
  return sizes[position];
}

bool LayerInputs::is_features(int64_t dim) const {
  const auto rank = examples.empty() ? 0 : examples[0].dim();
  return rank >= 3 && (dim == -1 || dim == rank - 1);
}

Operation::Traits LayerInputs::traits_along(int64_t dim) const {
  Operation::Traits traits = kComputed;
  traits.position_wise = is_features(dim);
  return traits;
}

void LayerInputs::require_dims(int64_t least, int64_t most, const std::string& meaning) const {
  const auto rank = static_cast<int64_t>(shape().size());
  if (rank < least || rank > most) throw LayerError("it needs " + meaning + ", not " + shape_text(shape()));
}

void LayerInputs::require_inputs(size_t least, size_t most) const {
  if (num_own() >= least && num_own() <= most) return;
  throw LayerError("it reads " + std::to_string(least) + (most > least ? " or more" : "") + " inputs, but gets " +
                   std::to_string(num_own()) + inputs_advice(least));
}

std::optional<Names> Codec<Names>::read(const Value& value, Reader& reader) {
  if (value.is_map() || value.is_null()) {
    reader.error(value.place(), "expected a " + type_name() + ", found " + value.describe());
    return std::nullopt;
  }
  if (!value.is_list()) {
    const auto one = Codec<std::string>::read(value, reader);
    return one ? std::optional<Names>(Names{*one}) : std::nullopt;
  }
  auto list = Codec<std::vector<std::string>>::read(value, reader);
  if (!list) return std::nullopt;
  Names names;
  names.assign(list->begin(), list->end());
  return names;
}

nlohmann::json Codec<Names>::schema(SchemaContext& context) {
  return {{"anyOf", {{{"type", "string"}}, Codec<std::vector<std::string>>::schema(context)}}};
}

void LayerCommon::describe(Fields<LayerCommon>& f) {
  f.optional("name", &LayerCommon::name)
      .not_empty("a name may not be empty")
      .doc("the layer's name in `inputs` and in the state dict; its index by default");
  f.optional("inputs", &LayerCommon::inputs)
      .doc("names of earlier layers or of fields of the batch; the previous layer's first output by default");
  f.optional("outputs", &LayerCommon::outputs).doc("names for this layer's outputs, in order");
  f.optional("repeat", &LayerCommon::repeat)
      .at_least(1)
      .doc("number of copies of this layer, one after the other, each with its own weights");
  f.optional("if", &LayerCommon::enabled).doc("false leaves the layer out; for blocks' parameters");
  f.optional("share", &LayerCommon::share)
      .doc(
          "an earlier layer, in this list or in one around it (encoder.fc1: within a container), whose module this "
          "layer uses; the options of both must be the same; Linear and Embedding share only their weight");
  f.optional("lr_scale", &LayerCommon::lr_scale)
      .at_least(0)
      .doc("factor by which the learning rate of its parameters is multiplied; 0 freezes them");
  f.optional("init", &LayerCommon::init)
      .doc("initial values of its weights, or of the parameters whose name a pattern matches");
  f.rule({.all = {the("name").matches(R"(^[^.]*$)")},
          .at = "name",
          .message = "'{name}' has a dot, which separates nested names in the state dict"});
  f.rule({.all = {the("name").matches(R"(^(?![0-9]+$))")},
          .at = "name",
          .message = "'{name}' is a number; numbers are the names of layers without a name"});
}

std::optional<LayerList> Codec<LayerList>::read(const Value& value, Reader& reader) {
  if (!value.is_list()) {
    reader.error(value.place(), "expected a list of layers, found " + value.describe());
    return std::nullopt;
  }
  ListReader list(reader);
  LayerList layers = list.read(value, {});
  reader.free_names.insert(reader.free_names.end(), list.free_names().begin(), list.free_names().end());
  return layers;
}

nlohmann::json Codec<LayerList>::write(const LayerList& value) {
  nlohmann::json types = nlohmann::json::array();
  for (const LayerSpec& spec : value.layers) types.push_back(spec.component.type);
  return types;
}

nlohmann::json Codec<LayerList>::schema(SchemaContext&) {
  return {{"type", "array"}, {"items", {{"$ref", "#/definitions/layer"}}}};
}

}  // namespace trainrun
