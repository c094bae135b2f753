#pragma once

#include <string>
#include <vector>

#include "registry/catalog.h"

namespace trainrun {

/// The file of the schema that an editor checks recipes by, in the folder of the user's project.
inline constexpr const char* kSchemaFile = "trainrun.schema.json";

/// What was done for editors.
struct EditorSetUp {
  std::vector<std::string> lines;
};
/// Writes the JSON Schema of recipes into `folder`, and adds to .vscode/settings.json, without changing anything else in
/// it, that recipes are checked by it. Throws Error where these settings cannot be read, and changes nothing then.
EditorSetUp set_up_editor(const std::string& folder, const Catalog& catalog);
std::string to_text(const EditorSetUp& set_up);

}  // namespace trainrun
