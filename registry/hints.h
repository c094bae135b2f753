#pragma once

#include <string>
#include <vector>

#include "registry/value.h"

namespace trainrun {

// What error messages suggest. What other systems call the parts of a recipe is never a synonym.

/// Lower case without '_' and '-': "KernelSize" and "kernel_size" are the same word.
std::string folded(const std::string& word);

/// Whether other systems say `word` for what recipes call `name`.
bool is_other_name(const std::string& word, const std::string& name);

/// The candidate that is the same word as `word`, but for case, '_', a module before it, or what other systems call it;
/// "" for none.
std::string same_name(const std::string& word, const std::vector<std::string>& candidates);

/// Where a recipe says what `word` says elsewhere, or in another section: "optimizer.lr" of learning_rate, "" for
/// nothing known. `path` is where `word` stands.
std::string place_in_recipe(const std::string& word, const std::string& path = "");

/// What serves instead of a component that other systems have and this one has not: "there are no folders of images
/// yet; …"; "" for nothing known.
std::string substitute_for(const std::string& component);

/// What to do where a list stands for a mapping: "; write its keys without the dashes before them"; "" for no list.
std::string mapping_hint(const Value& value);

}  // namespace trainrun
