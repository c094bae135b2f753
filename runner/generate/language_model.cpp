#include "runner/generate/language_model.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <filesystem>

#include "registry/formats/files/settings_file.h"
#include "registry/formats/text/tokenizer.h"
#include "registry/graph/passes.h"
#include "registry/graph/shape_mode.h"
#include "registry/kinds/graph_builder.h"
#include "registry/kinds/layer_shapes.h"
#include "registry/models/language_model.h"
#include "registry/models/model_config.h"
#include "runner/device/device.h"
#include "runner/model/model_records.h"
#include "runner/model/precision.h"
#include "runner/model/pretrained_weights.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;

/// What the file says is the model's class.
std::string architecture_of(const std::string& path) {
  const nlohmann::json names = read_settings(path).value("architectures", nlohmann::json());
  if (!names.is_array() || names.empty() || !names[0].is_string()) {
    throw DataError(path + ": names no model under `architectures`");
  }
  return names[0].get<std::string>();
}

LayerList layers_of(const std::string& folder, const Catalog& catalog) {
  const std::string path = (fs::path(folder) / "config.json").string();
  const std::string type = architecture_of(path);
  if (!catalog.layers.entries().contains(type)) {
    throw DataError(path + ": the architecture " + type +
                    " is not a registered model; `trainrun list layers` names those there are");
  }
  const Place place = {std::make_shared<const std::string>(path), 1, 1};
  std::vector<Value::Entry> entries;
  entries.push_back({"type", place, Value::scalar(type, true, place)});
  entries.push_back({"pretrained", place, Value::scalar(folder, true, place)});
  std::vector<Problem> problems;
  Reader reader(catalog, problems);
  auto layers = Codec<LayerList>::read(Value::list({Value::map(std::move(entries), place)}, place), reader);
  if (!layers) throw RecipeError(problems);
  return std::move(*layers);
}

std::shared_ptr<Graph> build_from(const std::string& folder, const Catalog& catalog) {
  constexpr int64_t kExampleLength = 8;
  const LayerList layers = layers_of(folder, catalog);
  LayerInputs inputs;
  {
    const ShapeMode shapes;
    inputs.names = {"input_ids"};
    inputs.examples = {at::empty({kExampleBatch, kExampleLength}, at::kLong)};
  }
  return build_model_graph(layers, inputs);
}

/// The shape of what flows into the graph under its input `i`, if any layer reads it.
std::optional<std::vector<int64_t>> read_shape(const Graph& graph, size_t i) {
  for (const Graph::Node& node : graph.nodes()) {
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      if (node.inputs[k] == i) return node.input_shapes[k];
    }
  }
  return std::nullopt;
}

/// Whether it reads more than one text of a batch: chosen_input_ids, rejected_input_ids.
bool reads_several_texts(const Graph& graph) { return std::ranges::count_if(graph.input_names(), holds_tokens) > 1; }

/// The registered model of one of its layers, which reads input_ids and gives [N, T, V]; null unless there is one.
const Graph* language_layer(const Graph& graph) {
  const Graph* found = nullptr;
  for (const Graph::Node& node : graph.nodes()) {
    const auto& inner = node.layer.graph;
    const auto is_record = [](const auto& child) { return child.key() == ModelRecord::kName; };
    if (!inner || std::ranges::none_of(inner->named_children(), is_record)) continue;
    if (!inner->slot(kInputIds) || inner->example_outputs().at(0).dim() != 3) continue;
    if (found) return nullptr;
    found = inner.get();
  }
  return found;
}

}  // namespace

LanguageModel language_model_of(const Recipe& recipe, const Model& model, at::Device device,
                                const nlohmann::json& learnt) {
  LanguageModel made;
  made.graph = &model.graph();
  made.plan = &model.plan();
  const Graph* layer = reads_several_texts(model.graph()) ? language_layer(model.graph()) : nullptr;
  if (layer) {
    made.graph = layer;
    made.own_plan = std::make_shared<const Plan>(make_plan(*layer));
    made.plan = made.own_plan.get();
  }
  made.device = device;
  made.autocast = autocast_dtype(recipe.mixed_precision);
  made.folder = pretrained_folder(model.graph());
  made.codec = codec_of_data(recipe, learnt);
  made.ends = ends_of_documents(recipe);
  if (!made.codec && find_tokenizer(made.folder)) made.codec = tokenizer_codec(made.folder, false);
  made.chat = chat_source_of(recipe);
  if (made.chat.tokenizer.empty() && find_tokenizer(made.folder)) made.chat.tokenizer = made.folder;
  return made;
}

void check_language_model(const LanguageModel& model) {
  const std::vector<int64_t> given = model.graph->example_outputs().at(0).sizes().vec();
  bool reads_tokens = false;
  for (size_t i = 0; i < model.graph->num_inputs(); ++i) {
    const auto shape = read_shape(*model.graph, i);
    reads_tokens = reads_tokens || (shape && shape->size() == 2 && given.size() == 3 && (*shape)[1] == given[1]);
  }
  if (!reads_tokens) {
    throw Error("the model is not a language model: it gives " + shape_text(given) +
                ", but a text is continued by the logits [N, T, V] of the token that follows each token of [N, T]");
  }
  if (model.codec && given[2] < model.codec->vocab_size()) {
    throw Error("the model is not a language model of its tokenizer: it gives " + std::to_string(given[2]) +
                " logits for each token, but the tokenizer has " + std::to_string(model.codec->vocab_size()) +
                " tokens");
  }
}

PretrainedModel::PretrainedModel(const std::string& folder, const Catalog& catalog, const DeviceChoice& device)
    : graph_(build_from(folder, catalog)) {
  DeviceWish wish;
  wish.device = device;
  model_.device = choose_device(wish);
  use_device(model_.device, /*tf32=*/false);
  load_all_pretrained(*graph_);
  graph_->eval();
  graph_->to(model_.device);
  plan_ = make_plan(*graph_);
  model_.graph = graph_.get();
  model_.plan = &plan_;
  model_.folder = folder;
  if (!find_tokenizer(folder)) return;
  model_.codec = tokenizer_codec(folder, /*with_special_tokens=*/true);
  model_.chat.tokenizer = folder;
}

bool PretrainedModel::is_in(const std::string& folder) {
  const fs::path path(folder);
  return fs::exists(path / "config.json") && !fs::exists(path / "recipe.yaml");
}

}  // namespace trainrun
