#include <c10/core/GradMode.h>

#include <filesystem>

#include "registry/kinds/graph_builder.h"
#include "runner/interop/exported_data.h"
#include "runner/interop/model_export.h"
#include "runner/interop/onnx_model.h"
#include "runner/model/example_batch.h"

namespace trainrun {
namespace {

/// Throws where the file would serve batches of no other size.
void require_open_batch(const OnnxModel& model) {
  for (const OnnxTensor& input : model.inputs) {
    if (!input.shape.empty() && std::holds_alternative<std::string>(input.shape[0])) continue;
    throw Error("export: the model serves no other number of samples than " + std::to_string(kExampleBatch) +
                ", by which '" + input.name + "' was tried: a layer works along dimension 0, or its form in ONNX " +
                "writes that size down; write --format safetensors");
  }
}

/// Class names as one list, where the first output has a number for each.
void add_output_names(const TrainedRun& run, OnnxModel& model) {
  const std::vector<OnnxSize>& shape = model.outputs.at(0).shape;
  const int64_t* count = shape.empty() ? nullptr : std::get_if<int64_t>(&shape.back());
  if (!count) return;
  const std::vector<std::string> names = output_names(run.contract(), *count);
  if (!names.empty()) model.metadata["trainrun.outputs"] = nlohmann::json(names).dump();
}

void write_run(TrainedRun& run, const std::string& path, bool external) {
  const EvaluationScope scope(run.callbacks());
  const Recipe& recipe = run.recipe();
  const DatasetInfo info = recipe.dataset.eval ? evaluation_info(recipe) : training_info(recipe);
  OnnxModel model = onnx_model_of(recipe, info, run.model());
  model.name = recipe.name;
  model.metadata = file_metadata(run);
  model.metadata.erase("format");  // of safetensors
  add_output_names(run, model);
  const std::string data = path + ".data";
  if (std::filesystem::exists(data)) throw Error(data + " is already there; name another file by --output");
  if (write_onnx(path, model, external)) {
    run.add_notes({"the weights are in " + data + ", without which " + path + " cannot be opened: keep them together"});
  }
}

}  // namespace

OnnxModel onnx_model_of(const Recipe& recipe, const DatasetInfo& info, const Model& model) {
  const c10::AutoGradMode no_gradients(false);
  const std::vector<size_t> slots = outputs_of_losses(recipe, model);
  const GraphFor build = [&](const LayerInputs& given) {
    auto graph = build_model_graph(recipe.model.layers, given);
    graph->set_outputs(slots);
    return graph;
  };
  OnnxModel result = onnx_model_of(build, example_batch(info), model.merged_state_dict());
  require_open_batch(result);
  return result;
}

void export_onnx(TrainedRun& run, const std::string& path) { write_run(run, path, false); }

void export_external_onnx(TrainedRun& run, const std::string& path) { write_run(run, path, true); }

}  // namespace trainrun
