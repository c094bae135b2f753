#include "runner/recipe/recipe_defaults.h"

#include <filesystem>
#include <fstream>

#include "runner/foresight/explain.h"
#include "runner/model/recipe_loader.h"
#include "tests/doctest.h"
#include "tests/runner/recipe_support.h"
#include "tests/sanitizers.h"
#include "tests/temporary_folder.h"

using namespace trainrun;  // NOLINT(google-build-using-namespace)

namespace {

LoadedRecipe load(const std::string& path) { return load_recipe(path, {}, test::catalog_of_the_program()); }

/// The recipe's text with every default.
std::string complete(const LoadedRecipe& recipe) {
  return resolved_text(with_defaults(recipe.resolved, test::catalog_of_the_program()));
}

/// What follows from it, whatever its file is called.
nlohmann::json explained(const LoadedRecipe& recipe) {
  auto explanation = to_json(explain(recipe));
  for (const char* key : {"recipe", "path"}) explanation.erase(key);
  return explanation;
}

}  // namespace

TEST_CASE("a recipe with every default written out is the same job, and complete") {
  constexpr size_t kEvery = test::kIsSanitized ? 4 : 1;  // what the recipes differ in is looked at elsewhere
  const TemporaryFolder folder;
  size_t number = 0;
  for (const char* recipes : {"recipes", "tests/recipes/valid"}) {
    for (const auto& entry : std::filesystem::directory_iterator(recipes)) {
      const std::string path = entry.path().string();
      if (!path.ends_with(".yaml") || !test::has_its_data(path) || number++ % kEvery != 0) continue;
      CAPTURE(path);
      const LoadedRecipe recipe = load(path);
      const std::string text = complete(recipe);
      const std::string written = folder / entry.path().filename().string();
      std::ofstream(written) << text;
      const LoadedRecipe again = load(written);
      CHECK(complete(again) == text);
      CHECK(explained(again) == explained(recipe));
    }
  }
}

TEST_CASE("defaults are those of sections, components and what they hold") {
  const std::string text = complete(load("tests/recipes/valid/minimal.yaml"));
  for (const char* line : {"seed: 42", "num_threads: auto", "batch_size: 1", "every_steps: 100", "keep_last: 2",
                           "max_grad_norm: null", "bias: true", "momentum: 0", "num_workers: 1"}) {
    CHECK_MESSAGE(text.find(line) != std::string::npos, line << "\n" << text);
  }
}
