#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "runner/recipe/merge.h"
#include "runner/recipe/recipe_source.h"
#include "runner/recipe/yaml.h"
#include "tests/doctest.h"
#include "tests/temporary_folder.h"

namespace trainrun::test {

/// An empty folder that is the working directory while this lives.
class Workplace {
 public:
  Workplace() : before_(std::filesystem::current_path()) { std::filesystem::current_path(folder_.path()); }
  ~Workplace() { std::filesystem::current_path(before_); }
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;

  void write(const std::string& path, const std::string& text) const {
    if (std::filesystem::path(path).has_parent_path())
      std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path, std::ios::binary) << text;
  }

 private:
  std::filesystem::path before_;
  TemporaryFolder folder_;
};

inline std::string errors_of(const ResolvedRecipe& recipe) {
  std::vector<std::string> lines;
  for (const Problem& problem : recipe.problems) lines.push_back(problem.to_string());
  return join(lines, "\n");
}

inline ResolvedRecipe resolve(const std::string& text, const std::vector<std::string>& overrides = {}) {
  const Workplace workplace;
  workplace.write("a.yaml", text);
  return resolve_recipe("a.yaml", overrides);
}

inline std::string errors_of(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return errors_of(resolve(text, overrides));
}

inline Value parse_good_value(const std::string& text) {
  std::vector<Problem> problems;
  Value value = parse_yaml(text, nullptr, problems);
  CHECK(problems.empty());
  return value;
}

inline void check_resolves(const std::string& text, const std::vector<std::string>& overrides,
                           const std::string& expected) {
  const ResolvedRecipe recipe = resolve(text, overrides);
  INFO(to_yaml(recipe.value));
  CHECK(errors_of(recipe) == "");
  CHECK(same_recipe(recipe.value, parse_good_value(expected)));
}

}  // namespace trainrun::test
