#include "runner/report/errors/error_pages.h"

#include <optional>
#include <string>
#include <vector>

#include "runner/model/recipe_loader.h"
#include "tests/doctest.h"
#include "tests/runner/recipe_support.h"
#include "tests/support.h"
#include "tests/temporary_folder.h"

using namespace trainrun;  // NOLINT(google-build-using-namespace)

namespace {

/// The codes that loading a recipe of this text gives; without one there is no file.
std::vector<std::string> codes_of_loading(const std::optional<std::string>& text, const std::string& override) {
  const TemporaryFolder folder;
  if (text) write_content(folder / "recipe.yaml", *text);
  Catalog& catalog = test::catalog_of_the_program();
  std::vector<std::string> codes;
  try {
    load_recipe(folder / "recipe.yaml", override.empty() ? std::vector<std::string>() : std::vector{override}, catalog);
  } catch (const RecipeError& error) {
    for (const Problem& problem : error.problems()) codes.push_back(code_text(code_of(problem)));
  }
  return codes;
}

}  // namespace

TEST_CASE("the example of a code gives exactly that code, and the mended one none") {
  CHECK(error_pages().size() >= 45);
  for (const ErrorPage& page : error_pages()) {
    const std::string code = code_text(page.code);
    CAPTURE(code);
    const bool has_file = page.code != ErrorCode::kUnreadable;
    CHECK(codes_of_loading(has_file ? std::optional(wrong_recipe(page)) : std::nullopt, page.given) ==
          std::vector{code});
    CHECK(codes_of_loading(mended_recipe(page), "").empty());
  }
}
