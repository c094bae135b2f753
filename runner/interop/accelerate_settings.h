#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "registry/language/error.h"

namespace trainrun {

/// What a configuration file of Accelerate comes to in a recipe.
struct AccelerateConfig {
  /// One key of a recipe, its value in YAML, and where the file says so.
  struct Setting {
    std::string key;
    std::string value;
    Place place;
  };
  std::vector<Setting> settings;
  std::vector<Problem> notes;     // what is done otherwise here, or means nothing
  std::vector<Problem> problems;  // what cannot be had, and what to do

  /// As load_recipe takes them: "num_processes=4".
  std::vector<std::string> overrides() const;
};

/// The text of a file, or nothing where it cannot be read.
using ReadText = std::function<std::optional<std::string>(const std::string& path)>;

}  // namespace trainrun
