#include "runner/init/init.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "registry/formats/files/file_io.h"
#include "registry/language/error.h"
#include "runner/base/text.h"
#include "runner/device/free_memory.h"
#include "runner/foresight/explain.h"
#include "runner/model/recipe_loader.h"
#include "runner/model/recipe_notes.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;

/// A file that is removed, unless it gets its name.
class UnfinishedFile {
 public:
  UnfinishedFile(const std::string& path, const std::string& text) : path_(path), temporary_(temporary_path(path)) {
    write_file_atomically(temporary_, text);
  }
  UnfinishedFile(const UnfinishedFile&) = delete;
  UnfinishedFile& operator=(const UnfinishedFile&) = delete;
  ~UnfinishedFile() {
    std::error_code ignored;
    if (!is_finished_) fs::remove(temporary_, ignored);
  }
  const std::string& temporary() const { return temporary_; }
  void finish() {
    rename_path(temporary_, path_);
    is_finished_ = true;
  }

 private:
  std::string path_, temporary_;
  bool is_finished_ = false;
};

/// The first line by which an editor finds the schema, as seen from the recipe's folder.
std::string schema_line(const InitOptions& options) {
  if (options.schema.empty()) return "";
  const fs::path folder = fs::absolute(options.output).parent_path();
  return "# yaml-language-server: $schema=" + fs::absolute(options.schema).lexically_relative(folder).string() + "\n";
}

void require_free(const std::string& path, bool replace) {
  if (!replace && fs::exists(path)) {
    throw Error(path + " is already there; name another file by --output, or write --force to replace it");
  }
}

/// The recipe as the program understands it. A fault in it is one of `init`, of which the user hears all the same.
Explanation explained(const std::string& path, const InitOptions& options, Catalog& catalog, Draft& draft) {
  try {
    const LoadedRecipe loaded = load_recipe(path, {}, catalog);
    const Explanation explanation = explain(loaded);
    for (const Problem& note : recipe_notes(loaded)) draft.doubts.push_back(note.path + ": " + note.message);
    return explanation;
  } catch (const RecipeError& error) {
    std::string faults;
    bool are_of_data = true;
    for (const Problem& problem : error.problems()) {
      faults += "\n" + problem.path + ": " + problem.message;
      are_of_data = are_of_data && problem.path.starts_with("dataset.");
    }
    if (are_of_data) throw Error(options.data + " cannot be learnt from as it is; no recipe was written:" + faults);
    throw Error("the recipe that was drafted for " + options.data +
                " is not valid, and was not written; please report this:" + faults);
  }
}

/// Files that the recipe names, and that are removed again where it is not written after all.
class NamedFiles {
 public:
  explicit NamedFiles(const std::map<std::string, std::string>& files) {
    for (const auto& [path, text] : files) {
      const std::string folder = fs::path(path).parent_path().string();
      if (!folder.empty()) create_folders(folder);
      write_file_atomically(path, text);
      written_.push_back(path);
    }
  }
  NamedFiles(const NamedFiles&) = delete;
  NamedFiles& operator=(const NamedFiles&) = delete;
  ~NamedFiles() {
    std::error_code ignored;
    for (const std::string& path : written_) {
      fs::remove(path, ignored);
      fs::remove(fs::path(path).parent_path(), ignored);  // if it is empty
    }
  }
  std::vector<std::string> keep() { return std::exchange(written_, {}); }

 private:
  std::vector<std::string> written_;
};

}  // namespace

InitReport write_recipe(const InitOptions& options, Catalog& catalog, bool replace) {
  require_free(options.output, replace);
  InitReport report;
  report.draft = draft_recipe(options);
  for (const auto& [path, text] : report.draft.files) require_free(path, replace);
  NamedFiles named(report.draft.files);
  const int64_t room = free_memory() / 2;
  const size_t doubts = report.draft.doubts.size();
  for (report.batch_size = report.draft.batch_size;; report.batch_size /= 2) {
    report.draft.doubts.resize(doubts);
    UnfinishedFile file(options.output, schema_line(options) + report.draft.recipe(report.batch_size));
    const Explanation explanation = explained(file.temporary(), options, catalog, report.draft);
    report.memory = explanation.memory.total();
    if (report.memory > room && report.batch_size > 1) continue;
    report.parameters = explanation.parameters;
    report.steps = explanation.length.total_steps.value_or(0);
    file.finish();
    break;
  }
  if (report.batch_size < report.draft.batch_size) {
    report.draft.doubts.push_back("batches of " + std::to_string(report.draft.batch_size) +
                                  " would take more than half of the free memory, " +
                                  bytes_text(2.0 * static_cast<double>(room)));
  }
  report.written = named.keep();
  report.written.push_back(options.output);
  return report;
}

std::string to_text(const InitReport& report, const InitOptions& options) {
  constexpr size_t kWidth = 110;
  std::string text;
  const auto add = [&](const std::string& mark, const std::string& sentence) {
    bool is_first = true;
    for (const std::string& line : wrapped(sentence, kWidth)) {
      text += (is_first ? mark : std::string(mark.size(), ' ')) + line + "\n";
      is_first = false;
    }
  };
  for (const std::string& line : report.draft.seen) add(text.empty() ? "" : "  ", line);
  add("  ", "batches of " + std::to_string(report.batch_size) + ": a step takes about " +
                bytes_text(static_cast<double>(report.memory)) + " for " + grouped(report.parameters) + " parameters" +
                (report.steps > 0 ? "; at most " + grouped(report.steps) + " steps" : ""));
  if (!report.draft.doubts.empty()) text += "to look at:\n";
  for (const std::string& doubt : report.draft.doubts) add("  - ", doubt);
  text += "written: " + join(report.written) + "\n";
  return text + "next: trainrun data " + options.output + "; trainrun " + options.output + "\n";
}

}  // namespace trainrun
