#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "registry/data/text_file.h"

namespace trainrun {

/// What the user says of the data beside where they lie.
struct InitOptions {
  std::string data;                      // a file or a folder
  std::optional<std::string> target;     // the column, or the array, to predict
  std::optional<std::string> task;       // "classification", "regression"
  std::vector<std::string> texts;        // the columns that a text model is to read
  std::optional<TextEncoding> encoding;  // of files of text
  std::optional<std::string> weights;    // a folder of a pretrained model, or a file of a vision model's weights
  std::string name;                      // of the run
  std::string output;                    // the recipe to write
  std::string schema;                    // the file by which editors check recipes, or ""
};

/// A recipe that is not written yet, and what was seen of the data on the way to it.
struct Draft {
  std::vector<std::string> seen;                          // a line each
  std::vector<std::string> doubts;                        // what the user should look at: a sentence each
  int64_t batch_size = 32;                                // that the data ask for, if it fits into memory
  std::function<std::string(int64_t batch_size)> recipe;  // its text
  std::map<std::string, std::string> files;  // that the recipe names and that are written with it: contents
};

/// How long a training is, so that small data are seen often enough and large ones not longer than needed.
struct Length {
  int64_t epochs = 1;
  int64_t patience = 1;  // evaluations without improvement until it stops
};
/// Of epochs that come to about `steps` steps, within these bounds.
Length length_for(int64_t samples, int64_t batch_size, int64_t steps, int64_t least, int64_t most);
/// The power of two next to `number`, within these bounds.
int64_t power_of_two(double number, int64_t least, int64_t most);

/// A word as a recipe's flow style has it: quoted where YAML would read something else, and `${` kept as it stands.
std::string recipe_word(const std::string& text);
/// "[a, b]"
std::string recipe_list(const std::vector<std::string>& words);
/// "setosa 50, versicolor 50, … (12 in all)", the most frequent first.
std::string counts_text(const std::map<std::string, int64_t>& counts);

/// The first line of a recipe: what it does, as a comment.
std::string heading(const std::string& subject);
/// A line of a recipe with a comment beside it, in the column where all of them stand.
std::string commented(const std::string& line, const std::string& comment);

/// Where one class is much rarer than another: a model that never says it may still be right nearly always.
bool is_unbalanced(const std::map<std::string, int64_t>& counts);
/// The metrics of a classification, and the figure by which the best weights are chosen.
std::string metrics_text(bool unbalanced);

}  // namespace trainrun
