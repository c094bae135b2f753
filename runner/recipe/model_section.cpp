#include <algorithm>

#include "registry/language/hints.h"
#include "registry/language/pattern.h"
#include "runner/recipe/recipe.h"

namespace trainrun {
namespace {

using nlohmann::json;

constexpr const char* kNoLayers = "a model needs at least one layer";

}  // namespace

std::optional<Blocks> Codec<Blocks>::read(const Value& value, Reader& reader) {
  if (!value.is_map()) {
    reader.error(value.place(), "expected a mapping of names to blocks, found " + value.describe());
    return std::nullopt;
  }
  Blocks blocks;
  for (const Value::Entry& entry : value.entries()) {
    const auto scope = reader.enter(entry.key);
    blocks.names.push_back(entry.key);
    if (reader.catalog().layers.find(entry.key)) {
      reader.error(entry.key_place,
                   "there is a layer called " + entry.key + " already; choose another name for the block");
    }
    if (!entry.value.is_map()) {
      reader.error(entry.value.place(), "expected {parameters: …, layers: […]}, found " + entry.value.describe());
      continue;
    }
    const std::vector<std::string> known = {"parameters", "inputs", "layers"};
    for (const Value::Entry& part : entry.value.entries()) {
      if (std::find(known.begin(), known.end(), part.key) != known.end()) continue;
      const auto key = reader.enter(part.key);
      reader.error(part.key_place, "unknown key of a block" + suggestion(part.key, known));
    }
    const Value* layers = entry.value.find("layers");
    const Value* parameters = entry.value.find("parameters");
    if (!layers) reader.error(entry.value.place(), "the block needs layers: […]");
    if (layers && !layers->is_list()) {
      const auto key = reader.enter("layers");
      reader.error(layers->place(), "expected a list of layers, found " + layers->describe());
    }
    if (parameters && !parameters->is_map() && !parameters->is_null()) {
      const auto key = reader.enter("parameters");
      reader.error(parameters->place(),
                   "expected a mapping of names to defaults (null: no default), found " + parameters->describe());
    }
  }
  return blocks;
}

json Codec<Blocks>::schema(SchemaContext& context) {
  const json block = {{"type", "object"},
                      {"required", {"layers"}},
                      {"additionalProperties", false},
                      {"properties",
                       {{"parameters",
                         {{"type", {"object", "null"}},
                          {"description", "names and their defaults; null: must be given where it is used"}}},
                        {"inputs", detail::or_interpolation(Codec<Names>::schema(context))},
                        {"layers", detail::or_interpolation(Codec<LayerList>::schema(context))}}}};
  return {{"type", "object"},
          {"propertyNames", {{"not", {{"enum", context.catalog.layers.names()}}}}},
          {"additionalProperties", block}};
}

void ModelSection::describe(Fields<ModelSection>& f) {
  f.optional("blocks", &ModelSection::blocks).doc("named pieces of the model, used like layer types");
  f.required("layers", &ModelSection::layers).not_empty(kNoLayers).doc("the layers, in order");
  f.optional("init", &ModelSection::init)
      .doc(
          "initial values of all weights, or of the parameters whose state name a pattern matches; set after the "
          "layers' own initialization");
  f.optional("weights", &ModelSection::weights)
      .doc("a state dict to start from: .safetensors, .pt of torch.save, or a folder in Hugging Face's layout");
  f.optional("freeze", &ModelSection::freeze)
      .doc("regular expressions, searched in state names: parameters that keep their values");
  f.optional("unfreeze_at_epoch", &ModelSection::unfreeze_at_epoch)
      .at_least(1)
      .doc("the epoch from which the parameters that `freeze` names are trained; null: never");
  f.optional("checkpoint_activations", &ModelSection::checkpoint_activations)
      .doc(
          "regular expressions, searched in the layers' state names: the activations inside a matching layer are not "
          "kept, but computed again in the backward pass; the results are the same");
  f.optional("adapters", &ModelSection::adapters)
      .doc("small sets of weights (LoRA, DoRA, IA3) that are trained instead of the model's own, which are frozen");
  f.rule({.when = {the("unfreeze_at_epoch").is_given()},
          .all = {the("adapters").is_missing()},
          .at = "unfreeze_at_epoch",
          .message = "adapters are trained with all other weights frozen; leave one of the two out"});
  f.rule({.when = {the("unfreeze_at_epoch").is_given()},
          .all = {the("freeze").is_given()},
          .at = "unfreeze_at_epoch",
          .message = "needs freeze: [PATTERN, …]"});
  f.relation(json::parse(R"({"if": {"required": ["blocks"]},
                             "else": {"properties": {"layers": {"$ref": "#/definitions/known_layer"}}}})"));
}

void RoleSection::describe(Fields<RoleSection>& f) {
  f.optional("from", &RoleSection::from)
      .one_of({"model"})
      .doc(
          "model: the recipe's own model as it was before training; with model.adapters, the same weights without the "
          "adapters, which needs a second copy only of what modules_to_save names");
  f.optional("layers", &RoleSection::layers).doc("the layers, in order, which read the fields of the batch");
  f.optional("weights", &RoleSection::weights)
      .doc("the state dict of `layers`, as in model.weights; not allowed if a layer has `pretrained`");
  f.either("from", "layers");
  f.rule({.when = {the("from").is_given()},
          .all = {the("weights").is_missing()},
          .at = "weights",
          .message = "the weights are the model's own; leave one of from and weights out"});
}

void WeightsSection::describe(Fields<WeightsSection>& f) {
  f.required("path", &WeightsSection::path)
      .doc("a .safetensors file, a .pt or .pth of torch.save, or a folder in Hugging Face's layout");
  f.optional("key", &WeightsSection::key)
      .doc(
          "the key of the state dict in a .pt file that also holds other things; \"\": state_dict, model or "
          "model_state_dict");
  f.optional("rename", &WeightsSection::rename)
      .doc(
          "regular expressions and what each match in a tensor's name is replaced by ($1: the first group), in order; "
          "null: leave such tensors out; {to: NAME, transpose: true}: also swap the two dimensions, as weights of "
          "GPT-2's Conv1D need it for a Linear");
  f.optional("strict", &WeightsSection::strict)
      .doc(
          "the file must have every tensor of the model, with the same shape, and no others; if false, the tensors "
          "that do not fit are listed and skipped");
}

void RenameSection::describe(Fields<RenameSection>& f) {
  f.optional("to", &RenameSection::to)
      .doc("what each match in the name is replaced by ($1: the first group); null: nothing is replaced");
  f.optional("transpose", &RenameSection::transpose).doc("swap the two dimensions of such a tensor: [A, B] to [B, A]");
}

void WeightsSection::check(Checker& checker) const {
  for (const auto& [pattern, unused] : rename.entries) {
    const std::string fault = pattern_fault(pattern);
    if (!fault.empty()) checker.fail("rename", fault);
  }
}

void ModelSection::check(Checker& checker) const {
  if (layers.layers.empty()) checker.fail("layers", kNoLayers);  // each has `if: false`
}

}  // namespace trainrun
