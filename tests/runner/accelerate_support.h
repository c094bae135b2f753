#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runner/interop/accelerate_config.h"

namespace trainrun::test {

using Keys = std::map<std::string, std::string>;

inline Keys keys_of(const AccelerateConfig& config) {
  Keys keys;
  for (const auto& setting : config.settings) keys[setting.key] = setting.value;
  return keys;
}

inline AccelerateConfig read_sample(const std::string& name) {
  return read_accelerate_config("tests/accelerate/" + name);
}

inline AccelerateConfig map_text(const std::string& text) {
  return map_accelerate_config(text, "config.yaml", [](const std::string&) { return std::nullopt; });
}

inline std::string lines_of(const std::vector<Problem>& problems) {
  std::string text;
  for (const Problem& problem : problems) text += problem.to_string() + "\n";
  return text;
}

}  // namespace trainrun::test
