#include "runner/init/editor.h"

#include <nlohmann/json.hpp>

#include <filesystem>

#include "registry/formats/files/file_io.h"
#include "registry/language/error.h"
#include "runner/recipe/recipe_schema.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kKey = "yaml.schemas";

/// The settings as they are; an empty object where there are none.
Json read_settings(const std::string& path) {
  constexpr uint64_t kMost = uint64_t{1} << 24;
  if (!fs::exists(path)) return Json::object();
  Json settings = Json::parse(read_file(path, kMost), nullptr, /*allow_exceptions=*/false, /*ignore_comments=*/false);
  if (!settings.is_object() || (settings.contains(kKey) && !settings[kKey].is_object())) {
    throw Error(
        path +
        ": is not plain JSON (comments and trailing commas are not), and is left as it is; add to it by hand: \"" +
        std::string(kKey) + "\": {\"./" + kSchemaFile + "\": [\"recipes/**/*.yaml\", \"*.recipe.yaml\"]}");
  }
  return settings;
}

/// Which files are recipes: those in folders of that name. Others name the schema in their first line.
Json patterns() { return Json::array({"recipes/**/*.yaml", "*.recipe.yaml"}); }

}  // namespace

EditorSetUp set_up_editor(const std::string& folder, const Catalog& catalog) {
  const std::string settings_file = (fs::path(folder) / ".vscode/settings.json").lexically_normal().string();
  const std::string schema_file = (fs::path(folder) / kSchemaFile).lexically_normal().string();
  const std::string key = std::string("./") + kSchemaFile;
  Json settings = read_settings(settings_file);
  EditorSetUp done;
  const bool was_there = fs::exists(schema_file);
  write_file_atomically(schema_file, recipe_schema(catalog).dump(2) + "\n");
  done.lines.push_back(schema_file + ": the JSON Schema of recipes, " + (was_there ? "written anew" : "written"));
  if (settings.contains(kKey) && settings[kKey].contains(key)) {
    done.lines.push_back(settings_file + ": names it already, and was left as it is");
  } else {
    create_folders(fs::path(settings_file).parent_path().string());
    settings[kKey][key] = patterns();
    write_file_atomically(settings_file, settings.dump(2) + "\n");
    done.lines.push_back(settings_file +
                         ": recipes/**/*.yaml and *.recipe.yaml are checked by it in VS Code with the extension YAML "
                         "(redhat.vscode-yaml)");
  }
  done.lines.push_back(std::string("any other recipe, in any editor with yaml-language-server, by this first line: # "
                                   "yaml-language-server: $schema=") +
                       kSchemaFile);
  return done;
}

std::string to_text(const EditorSetUp& set_up) {
  std::string text;
  for (const std::string& line : set_up.lines) text += line + "\n";
  return text;
}

}  // namespace trainrun
