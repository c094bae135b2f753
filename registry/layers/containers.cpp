#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>

#include "registry/graph/shape_mode.h"
#include "registry/kinds/graph_of_parts.h"
#include "registry/layers/onnx_parts.h"

namespace trainrun {
namespace {

struct Sequential {
  LayerList layers;
  static void describe(Fields<Sequential>& f) {
    f.required("layers", &Sequential::layers).doc("the layers, each reading the one before");
  }
  Layer build(const LayerInputs& in) const { return in.graph(layers); }
};

/// The parameters of an Add that adds what it reads, and no number.
nlohmann::json plain_sum() { return {{"other", nullptr}}; }

/// How branches come together, in ONNX.
struct Joined {
  std::string merge = "add";
  int64_t dim = 1;
  void onnx(OnnxForm& form) const {
    form.give(merge == "add" ? onnx_sum(form) : onnx_joined(form, dim, merge == "stack"));
  }
};

struct Residual {
  LayerList main;
  LayerList shortcut;
  static void describe(Fields<Residual>& f) {
    f.required("main", &Residual::main).doc("the layers whose output is added");
    f.optional("shortcut", &Residual::shortcut)
        .doc("the layers whose output is added to it; the input itself by default");
  }
  Layer build(const LayerInputs& in) const {
    GraphOfParts parts(in);
    const size_t sum = parts.add("main", main);
    const size_t beside = parts.add("shortcut", shortcut);
    require_same(parts.example(sum), parts.example(beside));
    const auto add = [](const Tensors& inputs) -> Tensors {
      require_same(inputs[0], inputs[1]);
      return {inputs[0] + inputs[1]};
    };
    Part part = {"Add", plain_sum(), {nullptr, add, kPointwise}, OwnOptions::of(Joined())};
    return parts.finish(parts.add("sum", std::move(part), {sum, beside}, {parts.example(sum)}));
  }

 private:
  static void require_same(const at::Tensor& sum, const at::Tensor& beside) {
    TORCH_CHECK(sum.sizes() == beside.sizes(), "main gives ", shape_text(sum.sizes()), ", shortcut gives ",
                shape_text(beside.sizes()));
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
  static nlohmann::json write(const Branch& value) { return Codec<LayerList>::write(value.layers); }
  static std::string type_name() { return "layer or list of layers"; }
};

namespace {

Tensors without_data(const Layer::Function& function, const Tensors& examples) {
  const ShapeMode shapes;
  const c10::AutoGradMode no_gradients(false);
  return function(examples);
}

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
        .doc("how the outputs of the branches are combined; none: each is a separate output");
    f.optional("dim", &Parallel::dim).doc("the dimension that concat and stack work along; 0 is the batch");
  }
  Layer build(const LayerInputs& in) const {
    GraphOfParts parts(in);
    std::vector<size_t> branches;
    for (const Branch& branch : layers) branches.push_back(parts.add(std::to_string(branches.size()), branch.layers));
    if (merge == "none") return parts.finish(branches);
    const Layer::Function function = merging();
    Tensors examples;
    for (const size_t branch : branches) examples.push_back(parts.example(branch));
    const Tensors merged = without_data(function, examples);
    const bool adds = merge == "add";
    const std::string type = adds ? "Add" : merge == "concat" ? "Concat" : "Stack";
    const nlohmann::json attributes = adds ? plain_sum() : nlohmann::json{{"dim", dim}};
    LayerInputs merging_inputs;
    merging_inputs.examples = examples;
    const Operation::Traits traits = adds                ? kPointwise
                                     : merge == "concat" ? merging_inputs.traits_along(dim)
                                                         : kComputed;
    Part part = {type, attributes, {nullptr, function, traits}, OwnOptions::of(Joined{merge, dim})};
    return parts.finish(parts.add("merge", std::move(part), branches, merged));
  }

 private:
  Layer::Function merging() const {
    if (merge == "concat") return [dim = dim](const Tensors& inputs) -> Tensors { return {at::cat(inputs, dim)}; };
    if (merge == "stack") return [dim = dim](const Tensors& inputs) -> Tensors { return {at::stack(inputs, dim)}; };
    return [](const Tensors& inputs) -> Tensors {
      at::Tensor sum = inputs[0];
      for (size_t i = 1; i < inputs.size(); ++i) sum = sum + inputs[i];
      return {sum};
    };
  }
};

}  // namespace

void add_containers(LayerRegistry& layers) {
  layers.add<Sequential>("Sequential", "layers one after the other, under one name");
  layers.add<Residual>("Residual", "main(x) + shortcut(x)");
  layers.add<Parallel>("Parallel", "branches that read the same input, merged");
}

}  // namespace trainrun
