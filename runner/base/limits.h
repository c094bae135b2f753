#pragma once

#include <cstddef>

#include "registry/language/value.h"

namespace trainrun {

// What bounds a recipe, so that no file, however it is written, takes long, fills the memory or exhausts the stack.
// Values are counted with aliases, bases and references expanded; a long text counts as several.
constexpr size_t kMaxRecipeBytes = 1 << 20;
constexpr size_t kMaxRecipeValues = 100'000;
constexpr size_t kMaxRecipeDepth = 64;
constexpr size_t kMaxKeyBytes = 1024;

/// How many values a text counts for.
size_t weight_of(const std::string& text);
/// How many values there are in `value`, itself included.
size_t weight_of(const Value& value);
/// 1 for a scalar or an empty list.
size_t depth_of(const Value& value);

}  // namespace trainrun
