#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "runner/model/recipe_loader.h"
#include "runner/report/errors/error_code.h"
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

/// What loading a recipe finds wrong.
struct Found {
  std::vector<std::string> errors;  // the lines of the error, without the file's own name
  std::string codes;                // of each, "T0101 T0103"
};

Found found_in(const std::string& path) {
  Catalog& catalog = test::catalog_of_the_program();
  Found found;
  try {
    load_recipe(path, {}, catalog);
  } catch (const RecipeError& error) {
    std::string text = error.what();
    for (size_t at = 0; (at = text.find(path + ":", at)) != std::string::npos;) text.erase(at, path.size() + 1);
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) found.errors.push_back(line);
    for (const Problem& problem : error.problems()) {
      found.codes += (found.codes.empty() ? "" : " ") + code_text(code_of(problem));
    }
  }
  return found;
}

/// The codes of each bad recipe's errors, as they are to stay: "alias_batchsize.yaml: T0101", by the path.
std::map<std::string, std::string> lasting_codes() {
  std::map<std::string, std::string> codes;
  std::ifstream file("tests/recipes/invalid_codes.txt");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    codes["tests/recipes/invalid/" + line.substr(0, colon)] = line.substr(colon + 2);
  }
  return codes;
}

}  // namespace

// Codes are found from messages: one that is worded anew must keep its code.
TEST_CASE("each bad recipe gives exactly its errors, each at its place and with its code") {
  const auto codes = lasting_codes();
  const auto recipes = test::recipes_in("tests/recipes/invalid");
  CHECK(recipes.size() >= 60);
  for (const std::string& path : recipes) {
    CAPTURE(path);
    const auto expected = expected_errors(path);
    CHECK(!expected.empty());
    const Found found = found_in(path);
    CHECK(found.errors == expected);
    REQUIRE(codes.contains(path));
    CHECK(found.codes == codes.at(path));
  }
}

TEST_CASE("each good recipe loads") {
  for (const char* folder : {"tests/recipes/valid", "recipes"}) {
    for (const std::string& path : test::recipes_in(folder)) {
      if (!test::has_its_data(path)) continue;
      CAPTURE(path);
      CHECK(found_in(path).errors.empty());
    }
  }
}
