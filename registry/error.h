#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "registry/value.h"

namespace trainrun {

/// The base of every error that trainrun raises. The message says what was wrong, where, and what to do.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Data that cannot be read: a file is missing, damaged, or in another format.
class DataError : public Error {
 public:
  using Error::Error;
};

/// A shared library of components that cannot be used.
class PluginError : public Error {
 public:
  using Error::Error;
};

/// One fault of a recipe.
struct Problem {
  Place place;
  std::string path;                // "model.layers[2].kernel_size"; empty for a fault of the whole file
  std::string message;             // "unknown parameter of Conv2d; did you mean kernel_size?"
  bool unknown_component = false;  // it names a component that is not registered; a plugin may have it

  /// "recipes/a.yaml:14:9: model.layers[2].kernel_sise: unknown parameter of Conv2d; did you mean kernel_size?"
  std::string to_string() const;
};

/// Every fault found in a recipe, one line each, in the order of their places.
class RecipeError : public Error {
 public:
  explicit RecipeError(std::vector<Problem> problems);
  const std::vector<Problem>& problems() const { return problems_; }

 private:
  std::vector<Problem> problems_;
};

/// Sorts by file, line and column, and drops exact repetitions.
void sort_problems(std::vector<Problem>& problems);

/// The candidate nearest to `word` by edit distance and by known other spellings (`learning_rate` for `lr`), or "" if
/// none is near.
std::string nearest(const std::string& word, const std::vector<std::string>& candidates);

/// "; did you mean kernel_size?", or "; known: A, B, C" if nothing is near and the list is short, or "".
std::string suggestion(const std::string& word, const std::vector<std::string>& candidates);

/// "A, B, C"
std::string join(const std::vector<std::string>& words, const std::string& separator = ", ");

}  // namespace trainrun
