#include "registry/adapters/peft_folder.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "registry/error.h"
#include "registry/files/file_io.h"
#include "registry/files/torch_file.h"
#include "registry/graph/outside_shape_mode.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kConfig = "adapter_config.json";
constexpr const char* kPrefix = "base_model.model.";
constexpr uint64_t kMostConfigBytes = 16 << 20;

/// The value for a message, short.
std::string shown(const json& value) {
  if (value.is_structured()) return value.is_array() ? "a list" : "a mapping";
  constexpr size_t kMostShown = 40;
  const std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  return text.size() > kMostShown ? text.substr(0, kMostShown) + "…" : text;
}

json parse_adapter_config(const std::string& path) {
  const std::string text = read_file(path, kMostConfigBytes);
  const auto check = [&](int depth, json::parse_event_t, json&) {
    constexpr int kDeepest = 16;
    if (depth > kDeepest) throw DataError(path + ": is nested too deeply to be an adapter's configuration");
    return true;
  };
  try {
    json parsed = json::parse(text, check);
    if (!parsed.is_object()) throw DataError(path + ": expected a mapping of settings, found " + shown(parsed));
    return parsed;
  } catch (const json::exception& error) {
    throw DataError(path + ": is not JSON: " + error.what());
  }
}

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
  config_ = parse_adapter_config((fs::path(path) / kConfig).string());
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
  if (!value.is_number()) fail(key, "expected a number, found " + shown(value));
  const double number = value.get<double>();
  constexpr double kMost = 1e9;
  if (!(std::abs(number) <= kMost)) fail(key, "is " + shown(value) + ", which no adapter has");
  return number;
}

bool PeftFolder::flag(const std::string& key, bool fallback) const {
  const json value = in_file(key);
  if (value.is_null()) return fallback;
  if (!value.is_boolean()) fail(key, "expected true or false, found " + shown(value));
  return value.get<bool>();
}

void PeftFolder::require(const std::string& key, const std::vector<json>& allowed, const std::string& why) const {
  const json value = in_file(key);
  if (value.is_null() || std::ranges::find(allowed, value) != allowed.end()) return;
  fail(key, "is " + shown(value) + "; " + why);
}

void PeftFolder::require_type(const std::string& peft_type, const std::string& component) const {
  const json type = in_file("peft_type");
  if (type == peft_type) return;
  fail("peft_type", "expected \"" + peft_type + "\" for " + component + ", found " + shown(type));
}

}  // namespace trainrun
