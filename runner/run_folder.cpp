#include "runner/run_folder.h"

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include "registry/error.h"
#include "runner/resume_path.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLock = ".lock";
constexpr const char* kRecipe = "recipe.yaml";
constexpr const char* kSummary = "summary.json";

enum class Content { kNone, kUnfinished, kOther };

/// What lies in a folder, and how to say it.
struct Finding {
  Content content;
  std::string words;  // of kOther: "holds another run"
};

/// Is a file of this name no sign of a run? A lock, or the trace of a process killed before it had written its recipe.
bool is_nothing(const std::string& name) { return name == kLock || is_temporary_name(name, kRecipe); }

bool is_empty(const std::string& path) {
  std::error_code error;
  bool found = false;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    found = found || !is_nothing(it->path().filename().string());
  }
  if (error) throw FileError(path, "look into the folder", error.value());
  return !found;
}

bool exists(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(path, error);
  if (status.type() == fs::file_type::none) throw FileError(path, "look at it", error.value());
  return fs::exists(status);
}

bool says_the_same(const std::string& recipe_path, const RunFolder::SameRecipe& same_recipe) {
  try {
    return same_recipe(recipe_path);
  } catch (const Error&) {
    return false;  // a recipe that cannot be read is another one: its folder stays as it is
  }
}

Finding look_into(const std::string& path, const RunFolder::SameRecipe& same_recipe, RunFolder::Resume resume) {
  if (!exists(path)) return {Content::kNone, ""};
  std::error_code error;
  if (!fs::is_directory(path, error)) return {Content::kOther, "is no folder"};
  if (is_empty(path)) return {Content::kNone, ""};
  if (exists(path + "/" + kSummary)) return {Content::kOther, "holds a finished run" + way_to_go_on(path)};
  if (!exists(path + "/" + kRecipe)) return {Content::kOther, "holds other files"};
  if (!says_the_same(path + "/" + kRecipe, same_recipe)) return {Content::kOther, "holds another run"};
  if (resume == RunFolder::Resume::kNever) return {Content::kOther, "holds an unfinished run, not to be resumed"};
  return {Content::kUnfinished, ""};
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

/// The lock file's descriptor, or nothing where another process holds it. `holder`: who that is.
std::optional<Descriptor> lock(const std::string& path, std::string& holder, std::vector<std::string>& notes) {
  const std::string file = path + "/" + kLock;
  Descriptor lock(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (lock.number() < 0) throw FileError(file, "create", errno);
  std::array<char, 300> text{};
  if (::flock(lock.number(), LOCK_EX | LOCK_NB) < 0) {
    if (errno == EWOULDBLOCK) {
      const ssize_t size = ::pread(lock.number(), text.data(), text.size(), 0);
      holder = size > 0 ? std::string(text.data(), static_cast<size_t>(size)) : "another process";
      return std::nullopt;
    }
    const bool cannot = errno == ENOLCK || errno == ENOSYS || errno == ENOTSUP;
    if (!cannot) throw FileError(file, "lock", errno);
    notes.push_back("the file system of " + path + " has no locks: do not start the same recipe twice at once");
  }
  const std::string own = "process " + std::to_string(::getpid()) + " on " + host_name();
  const bool written = ::ftruncate(lock.number(), 0) == 0 && ::pwrite(lock.number(), own.data(), own.size(), 0) >= 0;
  if (!written) throw FileError(file, "write", errno);
  return lock;
}

/// `output_dir` without trailing slashes and dots, so that "-2" can be appended.
std::string plain_path(const std::string& output_dir) {
  if (output_dir.empty()) throw Error("output_dir is empty; it names the folder in which the run lives");
  fs::path path = fs::path(output_dir).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // a trailing slash
  if (path.filename() == "." || path.filename() == "..") path = fs::absolute(path).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  return path.string();
}

}  // namespace

RunFolder RunFolder::open(const std::string& output_dir, const std::string& recipe_yaml, const SameRecipe& same_recipe,
                          Resume resume) {
  const std::string base = plain_path(output_dir);
  RunFolder run;
  std::string why;  // of the first folder passed over
  constexpr int kMostRuns = 100'000;
  for (int number = 1; number <= kMostRuns; ++number) {
    run.path_ = number == 1 ? base : base + "-" + std::to_string(number);
    Finding finding = look_into(run.path_, same_recipe, resume);
    std::string holder;
    if (finding.content != Content::kOther) {
      create_folders(run.path_);
      std::optional<Descriptor> lock = trainrun::lock(run.path_, holder, run.notes_);
      if (lock) {
        finding = look_into(run.path_, same_recipe, resume);  // what came while we had no lock
        run.lock_ = std::move(*lock);
      } else {
        finding = {Content::kOther, "is in use by " + holder};
      }
    }
    if (finding.content == Content::kOther) {
      run.lock_ = Descriptor();
      if (why.empty()) why = run.path_ + " " + finding.words;
      continue;
    }
    run.continues_ = finding.content == Content::kUnfinished;
    if (!run.continues_) write_file_atomically(run.recipe_path(), recipe_yaml);
    if (!why.empty()) run.notes_.push_back(why + "; this one goes to " + run.path_);
    if (run.continues_) run.notes_.push_back("goes on with the unfinished run in " + run.path_);
    return run;
  }
  throw Error(base + " and the " + std::to_string(kMostRuns) +
              " folders after it hold runs; choose another output_dir");
}

void RunFolder::finish(const std::string& summary_json) const { write_file_atomically(summary_path(), summary_json); }

int64_t truncate_metrics(const std::string& path, int64_t step, bool evaluation_due) {
  if (!exists(path)) return 0;
  std::ifstream lines(path, std::ios::binary);
  if (!lines) throw DataError(path + ": cannot open it");
  int64_t dropped = 0;
  write_file_atomically(path, [&](FileWriter& kept) {
    for (std::string line; std::getline(lines, line);) {
      const auto metrics = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
      const bool whole = metrics.is_object();
      const bool counts = whole && metrics.contains("step") && metrics["step"].is_number();
      const double of = counts ? metrics["step"].get<double>() : 0;
      const bool comes_again =
          evaluation_due && of == static_cast<double>(step) && metrics.contains("split") && metrics["split"] == "eval";
      const bool later = counts && (of > static_cast<double>(step) || comes_again);
      if (whole && !later) {
        kept.write(line + "\n");
      } else {
        ++dropped;
      }
    }
    if (lines.bad()) throw DataError(path + ": cannot read it");
  });
  return dropped;
}

}  // namespace trainrun
