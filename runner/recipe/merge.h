#pragma once

#include <string>
#include <vector>

#include "registry/language/error.h"
#include "registry/language/interpolation.h"
#include "registry/language/value.h"
#include "runner/recipe/merge_tags.h"

namespace trainrun {

/// Lays `over` on `target`: mappings merge deeply, anything else replaces, as does a mapping with `!replace`; what
/// `!remove` stands for goes. Every value keeps its place. Tags that found nothing to do are still there afterwards,
/// for what this is laid on next.
void merge_into(Value& target, Value over, const MergeTags& tags);

/// Takes what is still to be removed out of a recipe that is laid on nothing more; each is a problem, since no such key
/// was there.
void report_unremoved(Value& recipe, const MergeTags& tags, std::vector<Problem>& problems);

/// One `key=value` of the command line, parsed. Places are in a file named "command line"; the line is which override
/// it is.
struct Override {
  Path path;
  std::vector<Place> step_places;  // of the path's steps
  Value value;
};

/// Parses all overrides; those that cannot be parsed become problems. Their tags are added to `tags`.
std::vector<Override> parse_overrides(const std::vector<std::string>& arguments, std::vector<Problem>& problems,
                                      MergeTags& tags);

/// Merges one override into the recipe. Mappings on the way that are missing are created, and the bare name of a
/// component (`ReLU`) becomes the mapping {type: ReLU}. A path that leads nowhere, or to nothing that could be removed,
/// is a problem and changes nothing.
void apply_override(Value& recipe, const Override& change, const MergeTags& tags, std::vector<Problem>& problems);

}  // namespace trainrun
