#pragma once

#include <memory>
#include <string>
#include <vector>

#include "registry/language/error.h"
#include "registry/language/value.h"
#include "runner/recipe/merge_tags.h"

namespace trainrun {

/// Reads one YAML document. Every node of the result knows its line and column (in code points). Scalars keep their
/// text; `quoted()` is true for quoted text, block scalars and `!!str`. Aliases and `<<` are expanded: the node itself
/// stands where the alias stands, what is inside it where it was written. Everything wrong is added to `problems`, with
/// what can still be made of the rest returned; null is returned only where the text holds no value or could not be
/// parsed to its end. Size and depth are bounded (runner/base/limits.h).
///
/// `tags` takes what `!replace` and `!remove` say; a value to be removed is a null. Without it they are unknown tags.
Value parse_yaml(const std::string& text, std::shared_ptr<const std::string> file, std::vector<Problem>& problems,
                 MergeTags* tags = nullptr);

/// Block style as a person writes it, short lists and maps on one line, quotes only where needed (also where readers of
/// YAML 1.1 would see a boolean or a number in a text). Ends with a newline. `parse_yaml` of it has the same meaning as
/// `value`, if no plain scalar of `value` is a null (the parser makes nulls of those).
std::string to_yaml(const Value& value);

}  // namespace trainrun
