#pragma once

#include <yaml-cpp/exceptions.h>

#include "registry/language/error.h"
#include "runner/recipe/yaml_text.h"

namespace trainrun {

/// Where in the text a mark of yaml-cpp's is.
size_t offset_of(const YAML::Mark& mark, const YamlText& source);

/// What is wrong with the text at which yaml-cpp gave up, and where, in words that say what to do. `open_flow`: where
/// the innermost { or [ that is still open begins, or null.
Problem syntax_problem(const YAML::Exception& error, const YamlText& source, const Place* open_flow);

}  // namespace trainrun
