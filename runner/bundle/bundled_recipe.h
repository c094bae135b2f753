#pragma once

#include <string>
#include <vector>

#include "registry/language/value.h"

namespace trainrun {

/// A file or folder that goes along.
struct BundledPath {
  std::string target;  // within its part of the bundle
  std::string source;  // on this machine
};

/// The variables that say where the parts of a bundle lie, in which its recipe's paths begin.
inline constexpr const char* kRunVariable = "TRAINRUN_BUNDLE_RUN";
inline constexpr const char* kDataVariable = "TRAINRUN_BUNDLE_DATA";

/// The recipe of a run as a bundle has it.
struct BundledRecipe {
  Value value;                        // resolved, in source form
  std::vector<BundledPath> of_run;    // plugins, configurations of models, chat templates
  std::vector<BundledPath> of_data;   // with data: what training reads
  std::vector<std::string> left_out;  // without: "dataset.train.path: houses.csv"
  std::vector<std::string> notes;
};

/// A tokenizer of the run: how the recipe names it, and its copy in the run's folder.
struct BundledTokenizer {
  std::string path, copy;
};

/// Has the recipe in `value` name what goes along by its place in the bundle. Device and processes become those of a
/// machine without a GPU, output_dir the usual one. Throws Error where data that are to go along are not there.
BundledRecipe bundled_recipe(Value value, const std::vector<BundledTokenizer>& tokenizers, bool with_data);

}  // namespace trainrun
