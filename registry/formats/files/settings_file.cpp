#include "registry/formats/files/settings_file.h"

#include <algorithm>

#include "registry/formats/files/file_io.h"
#include "registry/formats/files/json_depth.h"
#include "registry/language/error.h"
#include "registry/language/text_forms.h"

namespace trainrun {

using nlohmann::json;

json read_settings(const std::string& path) {
  constexpr uint64_t kMostBytes = 16 << 20;
  const std::string text = read_file(path, kMostBytes);
  constexpr int kDeepest = 64;
  check_json_depth(text, kDeepest, path);
  try {
    json settings = json::parse(text);
    if (!settings.is_object())
      throw DataError(path + ": expected a mapping of settings, found " + shown_json(settings));
    return settings;
  } catch (const json::exception& error) {
    throw DataError(path + ": is not JSON: " + error.what());
  }
}

bool means_nothing(std::span<const MeaninglessKey> keys, std::string_view key) {
  return std::ranges::find(keys, key, &MeaninglessKey::name) != keys.end();
}

std::string unknown_keys_text(const std::vector<std::string>& keys) {
  return join(keys) + (keys.size() == 1 ? " is a key that is" : " are keys that are") +
         " not known here; nothing follows from " + (keys.size() == 1 ? "it" : "them");
}

std::string shown_json(const json& value) {
  if (value.is_structured()) return value.is_array() ? "a list" : "a mapping";
  constexpr size_t kMostShown = 40;
  return shortened(value.dump(-1, ' ', false, json::error_handler_t::replace), kMostShown);
}

}  // namespace trainrun
