#pragma once

#include <string>
#include <vector>

#include "registry/language/error.h"
#include "registry/language/value.h"

namespace trainrun {

/// Adds a note for each file of the data sets in `written`, a part of a recipe at `path`, that is read by its `encoding`
/// as another text than it seems to be. Files that cannot be read are said where they are.
void add_encoding_notes(const Value& written, const std::string& path, std::vector<Problem>& notes);
/// The same for other files that are read as the data set `dataset` reads its own.
std::vector<std::string> encoding_notes(const Value& dataset, const std::vector<std::string>& files);

}  // namespace trainrun
