#include "runner/model/hub_paths.h"

#include <memory>

#include "registry/data/hub/hub_urls.h"
#include "registry/formats/web/network.h"
#include "runner/model/published_names.h"

namespace trainrun {
namespace {

bool is_url(const Value& value) {
  return value.is_scalar() && value.scalar_type() == ScalarType::kString && is_hub_url(value.text());
}

/// What the path of a data set of this type becomes.
std::string replaced(const std::string& url, const std::string& type, bool is_root) {
  const HubUrl parsed = parse_hub_url(url);
  const bool is_hub_dataset = type == "HubDataset";
  if (is_hub_dataset && !parsed.file.empty()) {
    throw DataError(url + ": HubDataset reads a whole data set: write path: " + parsed.name.text() +
                    " and files: " + parsed.file);
  }
  if (is_hub_dataset) return parsed.name.text();
  if (parsed.file.empty() && !is_root) {
    throw DataError(url + ": is a data set; name a file of it, or write type: HubDataset, path: " + parsed.name.text());
  }
  return local_path(url);
}

class HubPaths {
 public:
  HubPaths(const Value& recipe, const Catalog& catalog, bool may_lack, std::vector<Problem>& problems)
      : file_(recipe.place().file), catalog_(catalog), may_lack_(may_lack), problems_(problems) {}

  void visit(Value& value, const std::string& path) {
    const bool is_dataset = value.is_map() && is_builtin_dataset(value, catalog_);
    const std::string type = is_dataset ? value.find("type")->text() : "";
    for (Value::Entry& entry : value.entries()) {
      const std::string own = path.empty() ? entry.key : path + "." + entry.key;
      const bool is_root = entry.key == "root";
      if (is_dataset && (entry.key == "path" || is_root)) {
        replace(entry.value, own, type, is_root);
        for (Value& item : entry.value.items()) replace(item, own, type, is_root);
      } else {
        visit(entry.value, own);
      }
    }
    for (size_t i = 0; i < value.items().size(); ++i) visit(value.items()[i], path + "[" + std::to_string(i) + "]");
  }

 private:
  void replace(Value& value, const std::string& path, const std::string& type, bool is_root) {
    if (!is_url(value)) return;
    try {
      const bool is_name = type == "HubDataset";  // who reads it fetches it
      if (!is_name && !network_is_allowed() && !source_of_hub_url(value.text()).is_cached) return;
      value = Value::scalar(replaced(value.text(), type, is_root), /*quoted=*/true, value.place());
    } catch (const DataError& error) {
      const auto& file = value.place().file;
      const bool is_of_run = file && file_ && *file == *file_;  // not of the command line
      if (!may_lack_ || !is_of_run) problems_.push_back({value.place(), path, error.what()});
    }
  }

  std::shared_ptr<const std::string> file_;  // of the recipe
  const Catalog& catalog_;
  bool may_lack_;
  std::vector<Problem>& problems_;
};

}  // namespace

Value with_hub_paths(Value recipe, const Catalog& catalog, bool may_lack, std::vector<Problem>& problems) {
  HubPaths paths(recipe, catalog, may_lack, problems);
  if (Value* dataset = recipe.find("dataset")) paths.visit(*dataset, "dataset");
  return recipe;
}

}  // namespace trainrun
