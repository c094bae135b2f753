#include <filesystem>
#include <fstream>
#include <set>

#include "runner/loggers/loggers.h"
#include "runner/model/recipe_loader.h"
#include "tests/doctest.h"
#include "tests/runner/recipe_support.h"

using namespace trainrun;  // NOLINT(google-build-using-namespace)

namespace {

/// The lines "# expect: LINE:COLUMN: MESSAGE" of a bad recipe.
std::vector<std::string> expected_errors(const std::string& path) {
  const std::string mark = "# expect: ";
  std::vector<std::string> errors;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(mark)) errors.push_back(line.substr(mark.size()));
  }
  return errors;
}

/// The lines of the error that loading gives, without the file's own name.
std::vector<std::string> found_errors(const std::string& path) {
  Catalog catalog = test::catalog_of_the_program();
  std::vector<std::string> errors;
  try {
    load_recipe(path, {}, catalog);
  } catch (const RecipeError& error) {
    std::string text = error.what();
    for (size_t at = 0; (at = text.find(path + ":", at)) != std::string::npos;) text.erase(at, path.size() + 1);
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) errors.push_back(line);
  }
  return errors;
}

}  // namespace

TEST_CASE("each bad recipe gives exactly its errors, each at its place") {
  const auto recipes = test::recipes_in("tests/recipes/invalid");
  CHECK(recipes.size() >= 60);
  for (const std::string& path : recipes) {
    CAPTURE(path);
    const auto expected = expected_errors(path);
    CHECK(!expected.empty());
    const auto found = found_errors(path);
    CHECK(found.size() == expected.size());
    for (size_t i = 0; i < std::min(found.size(), expected.size()); ++i) CHECK(found[i] == expected[i]);
  }
}

TEST_CASE("each good recipe loads") {
  for (const char* folder : {"tests/recipes/valid", "recipes"}) {
    for (const std::string& path : test::recipes_in(folder)) {
      if (!test::has_its_data(path)) continue;
      CAPTURE(path);
      CHECK(found_errors(path).empty());
    }
  }
}
