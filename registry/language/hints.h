#pragma once

#include <string>
#include <vector>

#include "registry/language/value.h"

namespace trainrun {

// What error messages suggest. Names from other systems are never accepted as synonyms; they only lead to suggestions.

/// Lower case without '_' and '-': "KernelSize" and "kernel_size" are the same word.
std::string folded(const std::string& word);

/// Whether `word` is another system's name for what recipes call `name`.
bool is_other_name(const std::string& word, const std::string& name);

/// The candidate that differs from `word` only in case, in '_', by a module before it, or because other systems call it
/// so; "" for none.
std::string same_name(const std::string& word, const std::vector<std::string>& candidates);

/// The place in a recipe for what `word` says in other systems, or in another section: "optimizer.lr" for
/// learning_rate; "" if unknown. `path` is where `word` is written.
std::string place_in_recipe(const std::string& word, const std::string& path = "");

/// What to use instead of a component that only other systems have: "there are no folders of images yet; …"; "" if
/// unknown.
std::string substitute_for(const std::string& component);

/// What to do about a list in place of a mapping: "; write its keys without the dashes before them"; "" if it is not a
/// list.
std::string mapping_hint(const Value& value);

}  // namespace trainrun
