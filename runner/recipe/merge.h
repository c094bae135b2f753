#pragma once

#include <string>
#include <vector>

#include "registry/error.h"
#include "registry/interpolation.h"
#include "registry/value.h"

namespace trainrun {

/// Lays `over` on `target`: mappings merge deeply, anything else replaces. Every value keeps its place.
void merge_into(Value& target, Value over);

/// One `key=value` of the command line, parsed. Places are in a file named "command line"; the line is which override
/// it is.
struct Override {
  Path path;
  std::vector<Place> step_places;  // of the path's steps
  Value value;
};

/// Parses all overrides; those that cannot be parsed become problems.
std::vector<Override> parse_overrides(const std::vector<std::string>& arguments, std::vector<Problem>& problems);

/// Merges one override into the recipe. Mappings on the way that are missing are created, and the bare name of a
/// component
/// (`ReLU`) becomes the mapping {type: ReLU}. A path that leads nowhere is a problem and changes nothing.
void apply_override(Value& recipe, const Override& change, std::vector<Problem>& problems);

}  // namespace trainrun
