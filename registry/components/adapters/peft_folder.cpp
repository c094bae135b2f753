#include "registry/components/adapters/peft_folder.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "registry/formats/files/settings_file.h"
#include "registry/graph/outside_shape_mode.h"
#include "registry/language/error.h"
#include "registry/tensors/files/torch_file.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kConfig = "adapter_config.json";
constexpr const char* kPrefix = "base_model.model.";

NamedTensors read_adapter_tensors(const fs::path& folder) {
  const OutsideShapeMode with_memory;
  for (const char* name : {"adapter_model.safetensors", "adapter_model.bin"}) {
    const std::string file = (folder / name).string();
    if (!fs::exists(file)) continue;
    NamedTensors tensors;
    for (auto& [full_name, tensor] : load_weights(file)) {
      if (!at::isFloatingType(tensor.scalar_type())) {
        throw DataError(file + ": '" + full_name + "' is " + at::toString(tensor.scalar_type()) +
                        ", but weights are floating-point numbers");
      }
      const bool has_prefix = full_name.starts_with(kPrefix);
      tensors.emplace_back(has_prefix ? full_name.substr(std::string_view(kPrefix).size()) : full_name, tensor);
    }
    if (tensors.empty()) throw DataError(file + ": holds no tensors");
    return tensors;
  }
  throw DataError(folder.string() +
                  ": has no weights: neither adapter_model.safetensors nor adapter_model.bin is there");
}

}  // namespace

PeftFolder::PeftFolder(const std::string& path) : path_(path) {
  if (!fs::is_directory(path)) {
    throw DataError("weights: there is no folder " + path +
                    "; adapters are not fetched from the internet: name a folder with adapter_config.json and "
                    "adapter_model.safetensors");
  }
  config_ = read_settings((fs::path(path) / kConfig).string());
  tensors_ = read_adapter_tensors(path);
}

void PeftFolder::fail(const std::string& key, const std::string& what) const {
  throw DataError((fs::path(path_) / kConfig).string() + ": " + key + ": " + what);
}

json PeftFolder::in_file(const std::string& key) const {
  const auto it = config_.find(key);
  return it == config_.end() ? json() : *it;
}

double PeftFolder::number(const std::string& key, double fallback) const {
  const json value = in_file(key);
  if (value.is_null()) return fallback;
  if (!value.is_number()) fail(key, "expected a number, found " + shown_json(value));
  const double number = value.get<double>();
  constexpr double kMost = 1e9;
  if (!(std::abs(number) <= kMost)) fail(key, "is " + shown_json(value) + ", which no adapter has");
  return number;
}

bool PeftFolder::flag(const std::string& key, bool fallback) const {
  const json value = in_file(key);
  if (value.is_null()) return fallback;
  if (!value.is_boolean()) fail(key, "expected true or false, found " + shown_json(value));
  return value.get<bool>();
}

void PeftFolder::require(const std::string& key, const std::vector<json>& allowed, const std::string& why) const {
  const json value = in_file(key);
  if (value.is_null() || std::ranges::find(allowed, value) != allowed.end()) return;
  fail(key, "is " + shown_json(value) + "; " + why);
}

void PeftFolder::require_type(const std::string& peft_type, const std::string& component) const {
  const json type = in_file("peft_type");
  if (type == peft_type) return;
  fail("peft_type", "expected \"" + peft_type + "\" for " + component + ", found " + shown_json(type));
}

}  // namespace trainrun
