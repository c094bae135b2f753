#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "registry/language/value.h"

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

/// A change of the file system that failed: "runs/a/model.safetensors: cannot write: No space left on device".
class FileError : public Error {
 public:
  FileError(const std::string& path, const std::string& operation, int error_number);
  int error_number() const { return error_number_; }

 private:
  int error_number_;
};

/// A file that the system did not let us read: "runs/a/state.json: cannot read: Input/output error". What is in it is
/// not known; unless it is missing, the next attempt may succeed.
class ReadError : public DataError {
 public:
  ReadError(const std::string& path, const std::string& operation, int error_number);
  /// Nothing has this name.
  bool is_missing() const;
  /// The same error, after the place at which the file is named: "list.csv:2: a.png: cannot open: …".
  ReadError named_at(const std::string& place) const { return {place + ": " + what(), error_number_}; }

 private:
  ReadError(const std::string& message, int error_number) : DataError(message), error_number_(error_number) {}
  int error_number_;
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
