#pragma once

#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "registry/catalog.h"
#include "registry/language/interpolation.h"
#include "runner/loggers/loggers.h"
#include "tests/doctest.h"

namespace trainrun::test {

/// Made once: under AddressSanitizer that takes longer than to load a recipe. Only a plugin changes it, and no recipe of
/// these tests has one that can be loaded.
inline Catalog& catalog_of_the_program() {
  static Catalog catalog = [] {
    Catalog made = builtins();
    add_loggers(made.loggers);
    return made;
  }();
  return catalog;
}

inline std::set<std::string> recipes_in(const std::string& folder) {
  std::set<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".yaml") paths.insert(entry.path().string());
  }
  return paths;
}

/// Whether a recipe's data are here, come along, or are fetched; not where one must put them there oneself.
inline bool has_its_data(const std::string& path) {
  const std::map<std::string, std::string> brought = {
      {"pets_resnet50", "pets"}, {"mrpc_minilm", "minilm"}, {"mrpc_bert", "bert-base-cased"},
      {"gpt2_clm", "gpt2"},      {"gpt2_clm_fsdp", "gpt2"},
  };
  const auto folder = brought.find(std::filesystem::path(path).stem().string());
  if (folder == brought.end()) return true;
  const char* data = std::getenv("TRAINRUN_DATA");
  return std::filesystem::is_directory(std::filesystem::path(data ? data : "data") / folder->second);
}

/// What lies in `value` at `path`, "a.b[0]".
inline const Value& node_at(const Value& value, const std::string& path) {
  std::string error;
  const Path steps = parse_path(path, error).value_or(Path());
  const Value* node = &value;
  for (const PathStep& step : steps) {
    node = step.is_index ? &node->items().at(step.index) : node->find(step.key);
    REQUIRE_MESSAGE(node, path);
  }
  return *node;
}

/// A recipe with faults.
struct FaultyRecipe {
  std::string input;
  std::string expected;  // the errors
};

}  // namespace trainrun::test
