#include "runner/interop/python/source_file.h"

#include <array>
#include <cctype>
#include <map>

namespace trainrun::python {
namespace {

// Of Python's own library; what else is imported comes after these.
constexpr std::array kStandard = {"argparse",  "bisect",  "collections", "contextlib", "copy",  "csv",
                                  "functools", "glob",    "gzip",        "itertools",  "json",  "math",
                                  "os",        "pathlib", "random",      "re",         "struct"};

bool is_standard(const std::string& line) {
  const size_t begin = line.find(' ') + 1;
  const std::string module = line.substr(begin, line.find_first_of(" .", begin) - begin);
  for (const char* name : kStandard) {
    if (module == name) return true;
  }
  return false;
}

}  // namespace

/// Whether what an import names is used: some parts of a program are the same whatever the recipe needs of them.
bool SourceFile::is_used(const std::string& line) const {
  const std::string name = line.substr(line.rfind(' ') + 1);
  const auto is_part_of_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  for (const std::string* text : {&constants_, &definitions_}) {
    for (size_t at = text->find(name); at != std::string::npos; at = text->find(name, at + 1)) {
      const size_t end = at + name.size();
      const bool begins = at == 0 || !is_part_of_name((*text)[at - 1]);
      if (begins && (end == text->size() || !is_part_of_name((*text)[end]))) return true;
    }
  }
  return false;
}

/// "import x" of Python's own library, or of others.
std::string SourceFile::whole_imports(bool standard) const {
  std::string lines;
  for (const std::string& line : imports_) {
    if (line.starts_with("import") && is_standard(line) == standard && is_used(line)) lines += line + "\n";
  }
  return lines;
}

/// "from x import y, z", a line for each module.
std::string SourceFile::partial_imports(bool standard) const {
  std::map<std::string, std::pair<std::string, std::vector<std::string>>> modules;  // by their names in small letters
  for (const std::string& line : imports_) {
    if (!line.starts_with("from") || is_standard(line) != standard || !is_used(line)) continue;
    constexpr size_t kFrom = 5;
    const size_t end = line.find(" import ");
    const std::string module = line.substr(kFrom, end - kFrom);
    std::string key;
    for (const char c : module) key += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    auto& names = modules[key];
    names.first = module;
    names.second.push_back(line.substr(end + std::string(" import ").size()));
  }
  std::string lines;
  for (const auto& [unused, names] : modules) {
    std::string all;
    for (const std::string& name : names.second) all += (all.empty() ? "" : ", ") + name;
    lines += "from " + names.first + " import " + all + "\n";
  }
  return lines;
}

void SourceFile::constant(const std::string& name, const std::string& value, const std::string& comment) {
  if (!defined_.insert(name).second) return;
  constants_ += name + " = " + value + (comment.empty() ? "" : "  # " + comment) + "\n";
}

void SourceFile::define(const std::string& name, const std::string& text) {
  if (!defined_.insert(name).second) return;
  definitions_ += "\n\n" + text;
}

void SourceFile::refuse(const Place& place, const std::string& path, const std::string& message) {
  problems_.push_back({place, path, "export --format python: " + message});
}

std::string SourceFile::text(const std::string& title) const {
  if (!problems_.empty()) throw RecipeError(problems_);
  std::string text = "\"\"\"" + title + "\"\"\"\n";
  for (const bool standard : {true, false}) {
    const std::string whole = whole_imports(standard);
    const std::string parts = partial_imports(standard);
    if (!whole.empty() || !parts.empty()) text += "\n" + whole + parts;
  }
  if (!constants_.empty()) text += "\n" + constants_;
  return text + definitions_;
}

}  // namespace trainrun::python
