// Vision models for transformers.
#include <filesystem>

#include "registry/language/error.h"
#include "registry/tensors/files/safetensors.h"
#include "runner/interop/export_files.h"
#include "runner/interop/exported_data.h"
#include "runner/interop/image_processor.h"
#include "runner/interop/model_card.h"
#include "runner/interop/model_export.h"
#include "runner/interop/vision_names.h"
#include "runner/model/model.h"
#include "runner/model/unread_fields.h"

namespace trainrun {
namespace {

using nlohmann::json;

/// [C, H, W] of the images that the model reads; nothing: it reads something else.
std::optional<std::array<int64_t, 3>> shape_of_images(const TrainedRun& run, const Graph& graph) {
  const Recipe& recipe = run.recipe();
  const DatasetInfo info = recipe.dataset.eval ? evaluation_info(recipe) : training_info(recipe);
  const std::vector<std::string> read = fields_read(graph);
  const FieldInfo* field = read.size() == 1 ? info.find(read[0]) : nullptr;
  if (!field || field->shape.size() != 3) return std::nullopt;
  return std::array{field->shape[0], field->shape[1], field->shape[2]};
}

/// The tensors of the recipe's only layer, by its own names for them.
NamedTensors tensors_within(const NamedTensors& state, const std::string& layer) {
  const std::string prefix = layer + ".";
  NamedTensors tensors;
  for (const auto& [name, tensor] : state) {
    tensors.emplace_back(name.starts_with(prefix) ? name.substr(prefix.size()) : name, tensor);
  }
  return tensors;
}

std::string usage_of_images(bool has_processor) {
  if (has_processor) {
    return "from transformers import pipeline\n\nmodel = pipeline(\"image-classification\", model=\"FOLDER\")\n"
           "print(model(\"picture.jpg\"))\n";
  }
  return "from transformers import AutoModelForImageClassification\n\n"
         "model = AutoModelForImageClassification.from_pretrained(\"FOLDER\")\n"
         "print(model(pixel_values=images).logits)\n";
}

}  // namespace

bool export_vision_model(TrainedRun& run, const std::string& folder) {
  const std::vector<LayerSpec>& layers = run.recipe().model.layers.layers;
  if (layers.size() != 1) return false;
  const auto shape = shape_of_images(run, run.model().graph());
  if (!shape) return false;
  auto model = vision_model(layers[0].component, *shape);
  if (!model) return false;
  json& config = model->config;
  for (int64_t i = 0; i < layers[0].component.attributes.at("num_classes").get<int64_t>(); ++i) {
    config["id2label"][std::to_string(i)] = "LABEL_" + std::to_string(i);
  }
  CardSubject subject{"transformers", model->architecture, pipeline_tag_of(model->architecture), ""};
  subject.labels = name_outputs(run, config);
  const NamedTensors tensors =
      vision_tensors(model->architecture, tensors_within(run.model().merged_state_dict(), layers[0].name));
  const ImageProcessor processor = image_processor(run.recipe());
  NewFolder made(folder);
  write_safetensors((made.path() / "model.safetensors").string(), tensors, file_metadata(run));
  write_json_file(made.path() / "config.json", config);
  if (processor.unsaid.empty()) {
    write_json_file(made.path() / "preprocessor_config.json", processor.config);
    if (processor.crops) {
      subject.remarks.emplace_back(
          "Where an odd number of rows or columns is cut off by CenterCrop, an image processor may begin one pixel "
          "further up "
          "or left than the run's evaluation.");
      run.add_notes(
          {"preprocessor_config.json: where CenterCrop cuts off an odd number of rows or columns, transformers "
           "may begin one pixel further up or left than trainrun and torchvision"});
    }
    subject.remarks.emplace_back(
        "In training, pictures were taken as they are stored; `pipeline` turns a picture by the orientation that its "
        "camera noted.");
  } else {
    const std::string unsaid =
        "There is no preprocessor_config.json, since transformers' image processors cannot say " +
        std::string("what the evaluation does to pictures: ") + processor.unsaid;
    run.add_notes({unsaid + "; the model reads what these transforms give"});
    subject.remarks.push_back(unsaid + ". The recipe below has all transforms.");
  }
  subject.usage = usage_of_images(processor.unsaid.empty());
  for (std::string& way : ways_back(run.contract())) subject.remarks.push_back(std::move(way));
  write_file_atomically((made.path() / "README.md").string(), model_card(run, subject));
  made.finish();
  return true;
}

}  // namespace trainrun
