#include "runner/interop/image_processor.h"

#include <vector>

#include "registry/image_data/image_samples.h"
#include "registry/kinds/dataset_facts.h"

namespace trainrun {
namespace {

using nlohmann::json;
using Transforms = std::vector<Component<TransformKind>>;

/// A number for each channel, or one for all.
json of_channels(const json& numbers) {
  const json list = numbers.is_array() ? numbers : json::array({numbers});
  return list.size() == 1 ? json::array({list[0], list[0], list[0]}) : list;
}

/// Of a pair, or of a number for both.
json height_and_width(const json& size) {
  const json& height = size.is_array() ? size.at(0) : size;
  return {{"height", height}, {"width", size.is_array() ? size.at(1) : height}};
}

/// CLIPImageProcessor does what all the others do, in their order, and each of it only where it is asked to.
class Processor {
 public:
  Processor() {
    config_ = {{"image_processor_type", "CLIPImageProcessor"},
               {"do_convert_rgb", true},
               {"do_resize", false},
               {"do_center_crop", false},
               {"do_rescale", true},
               {"rescale_factor", 1.0 / 255},
               {"do_normalize", false}};
  }

  /// Why it cannot do this as well; "": it can.
  std::string add(const Component<TransformKind>& transform) {
    const json& own = transform.attributes;
    if (own.value("field", "image") != "image") return "";  // of another field
    const auto comes = [&](int step) { return std::exchange(step_, step) < step; };
    const std::string out_of_order = transform.type + ", which image processors do in another order";
    if (transform.type == "Resize") return comes(1) ? add_resize(own) : out_of_order;
    if (transform.type == "CenterCrop") {
      config_["do_center_crop"] = true;
      config_["crop_size"] = height_and_width(own.at("size"));
      return comes(2) ? "" : out_of_order;
    }
    if (transform.type == "Normalize") {
      config_["do_normalize"] = true;
      config_["image_mean"] = of_channels(own.at("mean"));
      config_["image_std"] = of_channels(own.at("std"));
      return comes(3) ? "" : out_of_order;
    }
    return transform.type + ", which image processors do not have";
  }
  const json& config() const { return config_; }

 private:
  std::string add_resize(const json& own) {
    const std::string interpolation = own.at("interpolation");
    if (interpolation != "bilinear" && interpolation != "bicubic") return "Resize with interpolation: " + interpolation;
    if (!own.at("antialias").get<bool>()) return "Resize with antialias: false";
    if (!own.at("max_size").is_null()) return "Resize with max_size";
    const json& size = own.at("size");
    config_["do_resize"] = true;
    config_["size"] = size.is_array() ? height_and_width(size) : json{{"shortest_edge", size}};
    config_["resample"] = interpolation == "bilinear" ? 2 : 3;  // Pillow's numbers
    return "";
  }

  json config_;
  int step_ = 0;
};

}  // namespace

ImageProcessor image_processor(const Recipe& recipe) {
  const Component<DatasetKind>& data = recipe.dataset.eval ? recipe.dataset.eval->sets[0].data : recipe.dataset.train;
  const std::unique_ptr<Dataset> built = data.build({});
  const ImageOptions* options = built->facts().image_options;
  if (!options) return {nullptr, data.type + " data, which are not files of pictures", false};
  if (options->mode != ColorMode::kRgb) return {nullptr, "mode: L, since pipelines read pictures in colour", false};
  Processor processor;
  for (const Transforms* transforms :
       {&options->image_transforms, &recipe.dataset.eval_transforms, &recipe.dataset.transforms}) {
    for (const Component<TransformKind>& transform : *transforms) {
      if (std::string unsaid = processor.add(transform); !unsaid.empty()) return {nullptr, unsaid, false};
    }
  }
  const bool crops = processor.config().at("do_center_crop").get<bool>();
  return {processor.config(), "", crops};
}

}  // namespace trainrun
