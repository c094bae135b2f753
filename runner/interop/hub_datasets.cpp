#include "runner/interop/hub_datasets.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "registry/data/hub/hub_urls.h"

namespace trainrun {
namespace {

/// The data set of the hub that a data set's parameter names; nothing: it names none.
std::optional<std::string> hub_dataset_in(const std::string& text, bool is_name) {
  if (const auto cached = url_of_cached(text)) return cached->name.id;
  if (is_hub_url(text)) return parse_hub_url(text).name.id;
  std::error_code unreachable;
  if (!is_name || std::filesystem::is_directory(text, unreachable)) return std::nullopt;
  const auto name = hub_name_of(text, HubKind::kDataset);
  return name ? std::optional(name->id) : std::nullopt;
}

/// Adds the data sets of the hub that data, or data within them, are read from, each once.
void add_hub_datasets(const Value& value, std::vector<std::string>& names) {
  const Value* type = value.find("type");
  const bool has_names = type && type->is_scalar() && type->text() == "HubDataset";
  const auto add = [&](const Value& one, bool is_name) {
    if (!one.is_scalar() || one.is_null()) return;
    const auto name = hub_dataset_in(one.text(), is_name);
    if (name && std::ranges::find(names, *name) == names.end()) names.push_back(*name);
  };
  for (const char* key : {"path", "root"}) {
    const Value* own = value.find(key);
    if (!own) continue;
    add(*own, has_names);
    for (const Value& item : own->items()) add(item, false);
  }
  for (const Value::Entry& entry : value.entries()) add_hub_datasets(entry.value, names);
  for (const Value& item : value.items()) add_hub_datasets(item, names);
}

}  // namespace

std::vector<std::string> hub_datasets_of(const Value& data) {
  std::vector<std::string> names;
  add_hub_datasets(data, names);
  return names;
}

std::string public_path(const std::string& path) {
  const auto url = url_of_cached(path);
  return url ? url_text(*url) : path;
}

}  // namespace trainrun
