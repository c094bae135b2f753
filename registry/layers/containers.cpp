#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>

#include "registry/graph/graph.h"

namespace trainrun {
namespace {

Layer layer_of_graph(const std::shared_ptr<Graph>& graph) {
  return {graph, [graph](const Tensors& inputs) { return graph->forward(inputs); }};
}

struct Sequential {
  LayerList layers;
  static void describe(Fields<Sequential>& f) {
    f.required("layers", &Sequential::layers).doc("the layers, each reading the one before");
  }
  Layer build(const LayerInputs& in) const { return layer_of_graph(in.graph(layers)); }
};

/// Holds the children of a container under their names.
struct Children : torch::nn::Module {};

struct Residual {
  LayerList main;
  LayerList shortcut;
  static void describe(Fields<Residual>& f) {
    f.required("main", &Residual::main).doc("the layers whose output is added");
    f.optional("shortcut", &Residual::shortcut).doc("the layers beside them; the input itself by default");
  }
  Layer build(const LayerInputs& in) const {
    const auto children = std::make_shared<Children>();
    const auto main_graph = children->register_module("main", in.graph(main));
    const auto shortcut_graph = children->register_module("shortcut", in.graph(shortcut));
    return {children, [main_graph, shortcut_graph](const Tensors& inputs) -> Tensors {
              const at::Tensor sum = main_graph->forward(inputs)[0];
              const at::Tensor beside = shortcut_graph->forward(inputs)[0];
              TORCH_CHECK(sum.sizes() == beside.sizes(), "main gives ", shape_text(sum.sizes()), ", shortcut gives ",
                          shape_text(beside.sizes()));
              return {sum + beside};
            }};
  }
};

/// One branch of Parallel: a layer, or a list of them.
struct Branch {
  LayerList layers;
};

}  // namespace

template <>
struct Codec<Branch> {
  static std::optional<Branch> read(const Value& value, Reader& reader) {
    const Value list = value.is_list() ? value : Value::list({value}, value.place());
    auto layers = Codec<LayerList>::read(list, reader);
    return layers ? std::optional<Branch>(Branch{std::move(*layers)}) : std::nullopt;
  }
  static nlohmann::json schema(SchemaContext& context) {
    return {{"anyOf", {Codec<LayerList>::schema(context), {{"$ref", "#/definitions/layer"}}}}};
  }
  static nlohmann::json write(const Branch&) { return nlohmann::json::array(); }
  static std::string type_name() { return "layer or list of layers"; }
};

namespace {

struct Parallel {
  std::vector<Branch> layers;
  std::string merge = "concat";
  int64_t dim = 1;
  static void describe(Fields<Parallel>& f) {
    f.required("layers", &Parallel::layers)
        .not_empty("needs at least one branch")
        .doc("the branches, each a layer or a list of layers; all read this layer's input");
    f.optional("merge", &Parallel::merge)
        .one_of({"concat", "add", "stack", "none"})
        .doc("what is done with the branches' outputs; none: each is an output of its own");
    f.optional("dim", &Parallel::dim).doc("the dimension that concat and stack work along; 0 is the batch");
  }
  Layer build(const LayerInputs& in) const {
    const auto children = std::make_shared<Children>();
    std::vector<std::shared_ptr<Graph>> branches;
    for (const Branch& branch : layers) {
      branches.push_back(children->register_module(std::to_string(branches.size()), in.graph(branch.layers)));
    }
    return {children, [branches, merge = merge, dim = dim](const Tensors& inputs) -> Tensors {
              Tensors outputs;
              for (const auto& branch : branches) outputs.push_back(branch->forward(inputs)[0]);
              if (merge == "concat") return {at::cat(outputs, dim)};
              if (merge == "stack") return {at::stack(outputs, dim)};
              if (merge == "none") return outputs;
              at::Tensor sum = outputs[0];
              for (size_t i = 1; i < outputs.size(); ++i) sum = sum + outputs[i];
              return {sum};
            }};
  }
};

}  // namespace

void add_containers(LayerRegistry& layers) {
  layers.add<Sequential>("Sequential", "layers one after the other, under one name");
  layers.add<Residual>("Residual", "main(x) + shortcut(x)");
  layers.add<Parallel>("Parallel", "branches that read the same input, merged");
}

}  // namespace trainrun
