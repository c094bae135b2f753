#include "registry/kinds/batch.h"

#include <algorithm>

#include "registry/language/error.h"

namespace trainrun {

at::Tensor& Batch::at(const std::string& name) { return const_cast<at::Tensor&>(std::as_const(*this).at(name)); }

const at::Tensor& Batch::at(const std::string& name) const {
  std::vector<std::string> names;
  for (const Field& field : fields_) {
    if (field.name == name) return field.tensor;
    names.push_back(field.name);
  }
  throw Error("the batch has no field '" + name + "'" + suggestion(name, names));
}

void Batch::set(const std::string& name, at::Tensor tensor) {
  const auto it = std::find_if(fields_.begin(), fields_.end(), [&](const Field& field) { return field.name == name; });
  if (it != fields_.end()) {
    it->tensor = std::move(tensor);
  } else {
    fields_.push_back({name, std::move(tensor)});
  }
}

int64_t Batch::size() const { return fields_.empty() ? 0 : fields_[0].tensor.size(0); }

const FieldInfo* DatasetInfo::find(const std::string& name) const {
  const auto it =
      std::find_if(fields.begin(), fields.end(), [&](const FieldInfo& field) { return field.name == name; });
  return it == fields.end() ? nullptr : &*it;
}

}  // namespace trainrun
