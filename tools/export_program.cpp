#include "tools/export_program.h"

#include <cstdio>
#include <filesystem>

#include "registry/formats/files/file_io.h"
#include "runner/interop/python/program.h"
#include "runner/interop/python/verification.h"
#include "runner/model/recipe_loader.h"

namespace trainrun {
namespace {

std::string recipe_of(const std::string& path) {
  if (!std::filesystem::is_directory(path)) return path;
  const std::string recipe = path + "/recipe.yaml";
  if (std::filesystem::exists(recipe)) return recipe;
  throw Error(path + " holds no recipe.yaml; name a recipe or a run's folder");
}

/// Prints losses side by side; false where they differ by more than `tolerance`.
bool print_comparison(const python::Verification& found, double tolerance) {
  for (const std::string& change : found.changes) std::printf("compared with %s\n", change.c_str());
  std::printf("%6s %14s %14s\n", "step", "trainrun", "PyTorch");
  for (size_t i = 0; i < found.losses.size() || i < found.others.size(); ++i) {
    const auto number = [i](const std::vector<double>& all) {
      char text[32];
      std::snprintf(text, sizeof text, "%.8g", i < all.size() ? all[i] : 0);
      return i < all.size() ? std::string(text) : std::string("-");
    };
    std::printf("%6zu %14s %14s\n", i + 1, number(found.losses).c_str(), number(found.others).c_str());
  }
  for (const auto& figure : found.figures) {
    std::printf("%-21s %14.8g %14.8g\n", ("eval/" + figure.name).c_str(), figure.own, figure.other);
  }
  const double worst = found.worst();
  const bool is_alike = worst <= tolerance;
  std::printf("the losses of %zu steps differ by at most %.2g, relative to their size: %s\n", found.losses.size(),
              worst, is_alike ? "the same training" : "more than the tolerance");
  return is_alike;
}

}  // namespace

void export_program(const RecipeArguments& arguments, const std::string& output, const ProgramExport& options,
                    Program& program) {
  const LoadedRecipe loaded =
      load_recipe(recipe_of(arguments.path), arguments.overrides, program.catalog, InitialWeights::kUnneeded);
  const python::Program written = python::write_program(loaded, program.catalog);
  const std::string path = output.empty() ? loaded.recipe.name + ".py" : output;
  if (std::filesystem::exists(path)) throw Error(path + " is already there; name another file by --output");
  write_file_atomically(path, written.text);
  if (!program.quiet) {
    for (const std::string& note : written.notes) std::fprintf(stderr, "note: %s\n", note.c_str());
    std::printf("%s\n", path.c_str());
  }
  if (options.verify == 0) return;
  const auto found = python::verify_program(loaded, program.catalog, {options.verify, options.python});
  if (!print_comparison(found, options.tolerance)) program.exit_code = kJobFailed;
}

}  // namespace trainrun
