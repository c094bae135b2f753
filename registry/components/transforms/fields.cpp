#include "registry/components/transforms/fields.h"

#include "registry/kinds/layer.h"

namespace trainrun {

std::string batch_text(const std::vector<int64_t>& shape) {
  std::vector<std::string> sizes = {"N"};
  for (const int64_t size : shape) sizes.push_back(size == kAnySize ? "?" : std::to_string(size));
  return "[" + join(sizes) + "]";
}

FieldInfo& find_field(DatasetInfo& info, const std::string& name, const std::string& transform) {
  std::vector<std::string> names;
  for (FieldInfo& field : info.fields) {
    names.push_back(field.name);
    if (field.name == name) return field;
  }
  throw LayerError(transform + ": the data set has no field '" + name + "'" + suggestion(name, names));
}

FieldInfo& image_field(DatasetInfo& info, const std::string& name, const std::string& transform) {
  FieldInfo& field = find_field(info, name, transform);
  if (field.shape.size() != 3) {
    throw LayerError(transform + ": expected images [N, C, H, W], '" + name + "' is " + batch_text(field.shape));
  }
  return field;
}

FieldInfo& float_field(DatasetInfo& info, const std::string& name, const std::string& transform) {
  FieldInfo& field = find_field(info, name, transform);
  if (!at::isFloatingType(field.dtype)) {
    throw LayerError(transform + ": '" + name + "' holds integers (" + at::toString(field.dtype) +
                     "), expected float32");
  }
  return field;
}

FieldInfo& pixel_field(DatasetInfo& info, const std::string& name, const std::string& transform) {
  FieldInfo& field = image_field(info, name, transform);
  return field.dtype == at::kByte ? field : float_field(info, name, transform);
}

FieldInfo& color_field(DatasetInfo& info, const std::string& name, const std::string& transform) {
  FieldInfo& field = pixel_field(info, name, transform);
  if (field.shape[0] != 1 && field.shape[0] != 3) {
    throw LayerError(transform + ": expected images of 1 channel or 3, '" + name + "' is " + batch_text(field.shape));
  }
  return field;
}

bool has_any_size(const FieldInfo& images) { return images.shape[1] == kAnySize || images.shape[2] == kAnySize; }

}  // namespace trainrun
