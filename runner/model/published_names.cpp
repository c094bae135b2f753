#include "runner/model/published_names.h"

#include "registry/data/characters.h"
#include "registry/data/hub/hub_files.h"
#include "registry/data/hub/hub_urls.h"
#include "registry/language/error.h"

namespace trainrun {
namespace {

bool is_text(const Value* value) { return value && value->is_scalar() && value->scalar_type() == ScalarType::kString; }

/// Whether a built-in component of this registry is of the type that `value` names. (A plugin's words are its own.)
template <class Kind>
bool is_builtin(const Value& value, const Registry<Kind>& registry) {
  const Value* type = value.find("type");
  const auto* entry = is_text(type) ? registry.find(type->text()) : nullptr;
  return entry && entry->origin.empty();
}

class Finder {
 public:
  explicit Finder(const Catalog& catalog) : catalog_(catalog) {}

  void visit(const Value& value, const std::string& path) {
    if (value.is_map() && is_builtin(value, catalog_.layers)) {
      add(value.find("pretrained"), path + ".pretrained", true,
          [](const std::string& name) { return source_of_model(name, PublishedPart::kWeights); });
    }
    if (value.is_map() && is_builtin(value, catalog_.datasets)) {
      add(value.find("tokenizer"), path + ".tokenizer", false, [](const std::string& name) {
        return name == kCharacters ? std::nullopt : source_of_model(name, PublishedPart::kTokenizer);
      });
      add_data(value, path);
    }
    for (const Value::Entry& entry : value.entries()) {
      visit(entry.value, path.empty() ? entry.key : path + "." + entry.key);
    }
    for (size_t i = 0; i < value.items().size(); ++i) visit(value.items()[i], path + "[" + std::to_string(i) + "]");
  }
  void add_weights(const Value* section, const std::string& path) {
    const Value* weights = section && section->is_map() ? section->find("weights") : nullptr;
    const bool is_map = weights && weights->is_map();
    add(is_map ? weights->find("path") : weights, path + ".weights" + (is_map ? ".path" : ""), false,
        &source_of_weights);
  }
  std::vector<PublishedName> take() { return std::move(found_); }

 private:
  void add_data(const Value& dataset, const std::string& place) {
    const std::string path = place + ".path";
    const Value* named = dataset.find("path");
    const size_t before = found_.size();
    const auto source_of_url = [](const std::string& text) {
      return is_hub_url(text) ? std::optional(source_of_hub_url(text)) : std::nullopt;
    };
    if (dataset.find("type")->text() == "HubDataset") {
      add(named, path, true, [&](const std::string& text) {
        return source_of_dataset(query_of(dataset, is_hub_url(text) ? parse_hub_url(text).name.text() : text));
      });
    } else {
      add(named, path, true, source_of_url);
      for (const Value& item : named ? named->items() : std::vector<Value>()) add(&item, path, true, source_of_url);
    }
    add(dataset.find("root"), place + ".root", true, source_of_url);
    for (size_t i = before; i < found_.size(); ++i) found_[i].is_data = true;
  }
  static HubQuery query_of(const Value& dataset, const std::string& path) {
    const auto text = [&](const char* key) {
      const Value* value = dataset.find(key);
      return value && value->is_scalar() && !value->is_null() ? std::optional(value->text()) : std::nullopt;
    };
    return {{text("split"), text("config"), text("files")}, path, text("revision")};
  }

  template <class SourceOf>
  void add(const Value* name, const std::string& path, bool tells_shapes, const SourceOf& source_of) {
    if (!is_text(name)) return;
    const auto source_if_good = [&]() -> decltype(source_of(name->text())) {
      try {
        return source_of(name->text());
      } catch (const DataError&) {
        return {};  // whoever needs it says what is wrong
      }
    };
    if (auto source = source_if_good()) found_.push_back({name->place(), path, std::move(*source), tells_shapes});
  }

  const Catalog& catalog_;
  std::vector<PublishedName> found_;
};

}  // namespace

bool is_builtin_dataset(const Value& dataset, const Catalog& catalog) { return is_builtin(dataset, catalog.datasets); }

std::vector<PublishedName> published_names(const Value& resolved, const Catalog& catalog) {
  Finder finder(catalog);
  if (!resolved.is_map()) return {};
  finder.visit(resolved, "");
  finder.add_weights(resolved.find("model"), "model");
  if (const Value* roles = resolved.find("models"); roles && roles->is_map()) {
    for (const Value::Entry& role : roles->entries()) finder.add_weights(&role.value, "models." + role.key);
  }
  return finder.take();
}

}  // namespace trainrun
