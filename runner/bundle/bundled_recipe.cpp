#include "runner/bundle/bundled_recipe.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>

#include "registry/data/hub/hub_urls.h"
#include "registry/data/path_patterns.h"
#include "registry/formats/web/hub_name.h"
#include "registry/formats/web/named_sources.h"
#include "registry/language/error.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;

bool is_there(const std::string& path) {
  std::error_code unreadable;
  return !path.empty() && fs::exists(path, unreadable);
}

bool is_file(const std::string& path) {
  std::error_code unreadable;
  return !path.empty() && fs::is_regular_file(path, unreadable);
}

std::string place_in(const char* name) { return std::string("${env:") + name + "}/"; }

/// Weights, which a trained model does not read: it has its own.
bool holds_weights(const fs::path& file) {
  static constexpr std::array kEndings = {".safetensors", ".bin",  ".pt",   ".pth",    ".ckpt",
                                          ".h5",          ".onnx", ".gguf", ".msgpack"};
  return std::ranges::find(kEndings, file.extension().string()) != kEndings.end();
}

/// What of a path has no characters of patterns, and the rest: "data", "part-*.csv".
std::pair<fs::path, std::string> without_pattern(const std::string& text) {
  fs::path base;
  const fs::path path = fs::path(text).lexically_normal();
  std::string rest;
  for (const fs::path& name : path) {
    const bool is_pattern = name.string().find_first_of("*?[{") != std::string::npos && !is_there(text);
    const bool is_last = base / name == path || (base.empty() && name == path);
    if (!rest.empty() || is_pattern || is_last) {
      rest += (rest.empty() ? "" : "/") + name.string();
    } else {
      base /= name;
    }
  }
  return {base.empty() ? "." : base, rest};
}

class RecipeBundler {
 public:
  RecipeBundler(const std::vector<BundledTokenizer>& tokenizers, bool with_data)
      : tokenizers_(tokenizers), with_data_(with_data) {}

  void visit(Value& value, const std::string& path, const std::string& key) {
    if (value.is_scalar()) visit_scalar(value, path, key);
    for (size_t i = 0; i < value.items().size(); ++i) {
      visit(value.items()[i], path + "[" + std::to_string(i) + "]", key);
    }
    const Value* type = value.find("type");
    const std::string outer = type_;
    if (type && type->is_scalar()) type_ = type->text();
    const bool has_pictures_beside = type && type_ == "ImageCSV" && !value.find("root");
    for (Value::Entry& entry : value.entries()) {
      const std::string own = path.empty() ? entry.key : path + "." + entry.key;
      if (has_pictures_beside && entry.key == "path" && entry.value.is_scalar()) {
        visit_picture_list(entry.value, own);
      } else {
        visit(entry.value, own, entry.key);
      }
    }
    type_ = outer;
  }

  BundledRecipe result;

 private:
  static void name_by(Value& value, const std::string& text) { value = Value::scalar(text, true, value.place()); }

  void visit_scalar(Value& value, const std::string& path, const std::string& key) {
    if (value.is_null() || value.scalar_type() != ScalarType::kString) return;
    const std::string text = value.text();
    if (text.find("${") != std::string::npos) return;  // a secret, or an expression
    const bool is_data = path.starts_with("dataset.");
    if (path.starts_with("plugins[")) return visit_plugin(value);
    if (key == "pretrained") return visit_pretrained(value, path);
    if (key == "tokenizer" && visit_tokenizer(value)) return;
    if (((is_data && key == "template") || (!is_data && key == "config")) && is_file(text)) return visit_small(value);
    const bool is_weights = !is_data && (key == "weights" || path.ends_with("weights.path"));
    const bool names_data = is_data && (key == "path" || key == "root");
    if (names_data || ((is_data || is_weights) && is_file(text))) visit_data(value, path);
  }

  void visit_plugin(Value& value) {
    if (!is_file(value.text())) throw Error("the plugin " + value.text() + " that the run uses is not there");
    const std::string target = "plugins/" + std::to_string(next_++) + "/" + fs::path(value.text()).filename().string();
    result.of_run.push_back({target, value.text()});
    name_by(value, target);  // plugins are looked for beside the recipe first
  }

  /// A chat template, the sizes of a model.
  void visit_small(Value& value) {
    const std::string target = "files/" + std::to_string(next_++) + "/" + fs::path(value.text()).filename().string();
    result.of_run.push_back({target, value.text()});
    name_by(value, place_in(kRunVariable) + target);
  }

  bool visit_tokenizer(Value& value) {
    const auto found = std::ranges::find(tokenizers_, value.text(), &BundledTokenizer::path);
    if (found == tokenizers_.end()) return false;
    name_by(value, place_in(kRunVariable) + found->copy);
    return true;
  }

  /// Its configuration and tokenizer always; its weights, from which training begins, with the data.
  void visit_pretrained(Value& value, const std::string& path) {
    std::string folder = value.text();
    if (!is_there(folder) && !hub_name_of(folder)) return;
    if (!is_there(folder)) folder = model_folder(folder, PublishedPart::kWeights);
    const auto [known, is_new] = folders_.emplace(folder, "pretrained/" + std::to_string(next_));
    name_by(value, place_in(kRunVariable) + known->second);
    if (!is_new) return;
    ++next_;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      const bool is_weights = holds_weights(entry.path());
      if (!entry.is_regular_file() || (is_weights && !with_data_)) continue;
      const std::string name = entry.path().lexically_relative(folder).string();
      if (!name.starts_with('.')) result.of_run.push_back({known->second + "/" + name, entry.path().string()});
    }
    if (!with_data_) result.left_out.push_back(path + ": the weights of " + published_name(folder));
  }

  void visit_data(Value& value, const std::string& path) {
    const std::string text = value.text();
    if (is_hub_url(text) || (type_ == "HubDataset" && !is_there(text))) {
      result.notes.push_back(path + ": " + text + " is not in the bundle; it is fetched where the bundle trains");
      return;
    }
    if (!with_data_) {
      result.left_out.push_back(path + ": " + text);
      return;
    }
    std::vector<std::string> found = {text};
    try {
      if (!is_there(text)) found = matching_paths({text}, path);
    } catch (const DataError&) {
      throw Error(path + ": " + text + " is not here; call trainrun bundle in the folder in which the run was trained" +
                  ", or leave out --with-data");
    }
    const auto [base, rest] = without_pattern(text);
    for (const std::string& one : found) take(base, fs::path(one).lexically_normal());
    name_by(value, place_in(kDataVariable) + folder_for(base) + "/" + rest);
  }

  /// The list of pictures, which lie beside it.
  void visit_picture_list(Value& value, const std::string& path) {
    const std::string text = value.text();
    if (!with_data_ || !is_file(text)) return visit_data(value, path);
    const fs::path folder = fs::absolute(text).lexically_normal().parent_path();
    const fs::path here = fs::current_path();
    if (std::mismatch(folder.begin(), folder.end(), here.begin(), here.end()).first == folder.end()) {
      throw Error(path + ": the pictures lie beside " + text + ", and all of the working folder would go along; call " +
                  "trainrun bundle from a folder that does not lie in " + folder.string() +
                  ", or leave out --with-data");
    }
    take(folder.parent_path(), folder);
    name_by(value, place_in(kDataVariable) + folder_for(folder.parent_path()) + "/" + folder.filename().string() + "/" +
                       fs::path(text).filename().string());
  }

  /// The folder of the bundle's data for what lies in `base`.
  std::string folder_for(const fs::path& base) {
    return data_folders_.emplace(fs::absolute(base).lexically_normal().string(), std::to_string(data_folders_.size()))
        .first->second;
  }

  void take(const fs::path& base, const fs::path& path) {
    const fs::path within =
        fs::absolute(path).lexically_normal().lexically_relative(fs::absolute(base).lexically_normal());
    const BundledPath one{folder_for(base) + "/" + within.string(), path.string()};
    if (std::ranges::find(result.of_data, one.target, &BundledPath::target) == result.of_data.end()) {
      result.of_data.push_back(one);
    }
  }

  const std::vector<BundledTokenizer>& tokenizers_;
  bool with_data_;
  std::string type_;  // of the component that is visited
  size_t next_ = 0;
  std::map<std::string, std::string> folders_, data_folders_;
};

/// A bundle computes on the CPU, and writes where it is called.
void settle_machine(Value& recipe, std::vector<std::string>& notes) {
  const auto text_of = [&](const char* key) {
    const Value* value = recipe.find(key);
    return value && value->is_scalar() ? value->text() : "";
  };
  const std::string device = text_of("device");
  const bool is_of_gpus = text_of("distributed_type") == "MULTI_GPU";
  if (device.starts_with("cuda") || is_of_gpus) {
    notes.emplace_back(
        "the run was trained on a GPU; CUDA's libraries are not in the bundle, which computes on the CPU");
  }
  recipe.set("device", {}, Value::scalar("cpu", false, {}));
  if (is_of_gpus) recipe.set("distributed_type", {}, Value::scalar("MULTI_CPU", false, {}));
  recipe.erase("output_dir");
}

}  // namespace

BundledRecipe bundled_recipe(Value value, const std::vector<BundledTokenizer>& tokenizers, bool with_data) {
  RecipeBundler bundler(tokenizers, with_data);
  settle_machine(value, bundler.result.notes);
  bundler.visit(value, "", "");
  bundler.result.value = std::move(value);
  return std::move(bundler.result);
}

}  // namespace trainrun
