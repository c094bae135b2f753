#pragma once

#include <nlohmann/json.hpp>

#include <string>

#include "runner/recipe/recipe.h"

namespace trainrun {

/// How a recipe's evaluation makes an image of a picture's file, as transformers' image processors say it.
struct ImageProcessor {
  nlohmann::json config;  // of preprocessor_config.json; null: it cannot say the same thing
  std::string unsaid;     // why, of which transform: "Pad, which …"
  bool crops = false;     // the middle, which begins a pixel elsewhere where an odd number of them is cut off
};

ImageProcessor image_processor(const Recipe& recipe);

}  // namespace trainrun
