#pragma once

#include <set>
#include <string>
#include <vector>

#include "registry/language/error.h"

namespace trainrun::python {

/// A Python file while it is put together: its parts add what they need of it, each thing once.
class SourceFile {
 public:
  /// "import math", "from torch import nn".
  void import(const std::string& line) { imports_.insert(line); }
  /// A value that the file names at its top; `comment` stands behind it.
  void constant(const std::string& name, const std::string& value, const std::string& comment = "");
  /// A function or class, complete; of several with the same name the first.
  void define(const std::string& name, const std::string& text);
  bool has(const std::string& name) const { return defined_.contains(name); }
  /// What a user should know that the file does not say.
  void note(const std::string& text) { notes_.push_back(text); }
  /// Something that PyTorch does not have, or that no program is written for. `message` says what to do.
  void refuse(const Place& place, const std::string& path, const std::string& message);

  const std::vector<std::string>& notes() const { return notes_; }
  /// The whole text, which begins with `title` as its documentation. Throws RecipeError where anything was refused.
  std::string text(const std::string& title) const;

 private:
  bool is_used(const std::string& line) const;
  std::string whole_imports(bool standard) const;
  std::string partial_imports(bool standard) const;

  std::set<std::string> imports_;
  std::set<std::string> defined_;
  std::string constants_;
  std::string definitions_;
  std::vector<std::string> notes_;
  std::vector<Problem> problems_;
};

}  // namespace trainrun::python
