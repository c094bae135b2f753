#include "runner/model/hub_paths.h"

#include "registry/data/hub/hub_urls.h"
#include "registry/formats/web/network.h"
#include "runner/model/published_names.h"

namespace trainrun {
namespace {

bool is_url(const Value& value) {
  return value.is_scalar() && value.scalar_type() == ScalarType::kString && is_hub_url(value.text());
}

class HubPaths {
 public:
  HubPaths(const Catalog& catalog, bool may_lack, std::vector<Problem>& problems)
      : catalog_(catalog), may_lack_(may_lack), problems_(problems) {}

  void visit(Value& value, const std::string& path) {
    const bool is_dataset = value.is_map() && is_builtin_dataset(value, catalog_);
    for (Value::Entry& entry : value.entries()) {
      const std::string own = path.empty() ? entry.key : path + "." + entry.key;
      if (is_dataset && entry.key == "path") {
        replace(entry.value, own);
        for (Value& item : entry.value.items()) replace(item, own);
      } else {
        visit(entry.value, own);
      }
    }
    for (size_t i = 0; i < value.items().size(); ++i) visit(value.items()[i], path + "[" + std::to_string(i) + "]");
  }

 private:
  void replace(Value& value, const std::string& path) {
    if (!is_url(value)) return;
    try {
      if (!network_is_allowed() && !source_of_hub_url(value.text()).is_cached) return;
      value = Value::scalar(local_path(value.text()), /*quoted=*/true, value.place());
    } catch (const DataError& error) {
      if (!may_lack_) problems_.push_back({value.place(), path, error.what()});
    }
  }

  const Catalog& catalog_;
  bool may_lack_;
  std::vector<Problem>& problems_;
};

}  // namespace

Value with_hub_paths(Value recipe, const Catalog& catalog, bool may_lack, std::vector<Problem>& problems) {
  if (Value* dataset = recipe.find("dataset")) HubPaths(catalog, may_lack, problems).visit(*dataset, "dataset");
  return recipe;
}

}  // namespace trainrun
