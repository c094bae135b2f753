#include "runner/run/run_folder.h"

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include "registry/language/error.h"
#include "runner/run/resume_path.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLock = ".lock";
constexpr const char* kRecipe = "recipe.yaml";
constexpr const char* kSummary = "summary.json";
constexpr const char* kMetrics = "metrics.jsonl";
constexpr const char* kLog = "log.txt";
constexpr const char* kCheckpoints = "checkpoints";
constexpr const char* kPlainCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./+,:@";
constexpr std::array kWritten = {kRecipe, kSummary, kMetrics};  // beside, then renamed
constexpr uint64_t kMostRecipeFileBytes = uint64_t{64} << 20;

enum class Content { kNone, kUnfinished, kOther };

/// What lies in a folder, and how to say it.
struct Finding {
  Content content;
  std::string words;                   // of kOther: "holds another run"
  std::vector<std::string> changes{};  // of kUnfinished: what is otherwise than before
  bool saved_nothing = false;          // of a run: it stopped before there was anything to keep
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

/// Does a metrics.jsonl have figures of an evaluation? True also where it cannot be read.
bool has_evaluation(const std::string& path) {
  if (!exists(path)) return false;
  std::ifstream lines(path, std::ios::binary);
  if (!lines) return true;
  for (std::string line; std::getline(lines, line);) {
    const auto figures = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (figures.is_object() && figures.contains("split") && figures["split"] == "eval") return true;
  }
  return lines.bad();
}

/// Does a run's folder hold nothing but what each start of the run writes: no checkpoint, no evaluation, no file that
/// we do not know?
bool saved_nothing(const std::string& path) {
  std::error_code error;
  bool found = false;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    const bool is_checkpoints = name == kCheckpoints && it->is_directory(error) && !it->is_symlink(error);
    if (is_checkpoints) found = found || !fs::is_empty(it->path(), error);
    const bool is_known = is_checkpoints || is_nothing(name) || name == kRecipe || name == kLog || name == kMetrics ||
                          is_temporary_name(name, kMetrics);
    found = found || !is_known;
  }
  return !error && !found && !has_evaluation(path + "/" + kMetrics);
}

/// What to type to have the name of `path` again, where nothing that lies there is worth keeping.
std::string way_to_free(const std::string& path) {
  std::string quoted;
  for (const char c : path) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  const bool is_plain = path.find_first_not_of(kPlainCharacters) == std::string::npos && path.front() != '-';
  return "; it saved nothing, so `rm -r " + (is_plain ? path : "-- '" + quoted + "'") + "` frees the name";
}

Finding look_into(const std::string& path, const RunFolder::Compare& compare, RunFolder::Resume resume) {
  if (!exists(path)) return {Content::kNone, ""};
  std::error_code error;
  const bool is_folder = fs::is_directory(path, error);
  if (error && error != std::errc::no_such_file_or_directory) throw FileError(path, "look at it", error.value());
  if (!is_folder) return {Content::kOther, "is not a folder"};
  if (is_empty(path)) return {Content::kNone, ""};
  if (exists(path + "/" + kSummary)) return {Content::kOther, "holds a finished run" + way_to_go_on(path)};
  if (!exists(path + "/" + kRecipe)) return {Content::kOther, "holds other files"};
  const RunFolder::Kinship kinship = compare(path + "/" + kRecipe);
  const bool is_worthless = saved_nothing(path);
  if (!kinship.is_same) {
    const std::string difference = kinship.difference.empty() ? "" : " (" + kinship.difference + ")";
    return {Content::kOther, "holds another run" + difference, {}, is_worthless};
  }
  if (resume == RunFolder::Resume::kNever && !is_worthless) {
    return {Content::kOther, "holds an unfinished run, not to be resumed"};
  }
  return {Content::kUnfinished, "", kinship.changes, is_worthless};
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

/// Whether the kernel lists a lock of this file; nothing where it lists none at all, or not those of the file's holder,
/// which may be on another machine or in another container.
std::optional<bool> is_listed_as_locked(const std::string& file) {
  struct stat status{};
  if (::stat(file.c_str(), &status) < 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  std::ifstream holder(file), locks("/proc/locks");
  if (!holder || !locks) return std::nullopt;
  const std::string words((std::istreambuf_iterator<char>(holder)), {});  // "process 12 on HOST"
  if (!words.ends_with(" on " + host_name())) return std::nullopt;
  const std::string inode = ":" + std::to_string(status.st_ino) + " ";
  for (std::string line; std::getline(locks, line);) {
    if (line.find(" FLOCK ") != std::string::npos && line.find(inode) != std::string::npos) return true;
  }
  return false;
}

/// The lock file's descriptor, or nothing where another process holds it. `holder`: who that is.
std::optional<Descriptor> lock(const std::string& path, std::string& holder, std::vector<std::string>& notes) {
  const std::string file = path + "/" + kLock;
  // What the link of another would lead to, or another name of the file, must not be written to.
  Descriptor lock(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0666));
  if (lock.number() < 0) throw FileError(file, "create the lock, which must be a plain file", errno);
  struct stat status{};
  if (::fstat(lock.number(), &status) < 0) throw FileError(file, "look at it", errno);
  if (!S_ISREG(status.st_mode) || status.st_nlink > 1) {
    throw Error(file + " is not a plain file of its own, as a run's lock must be; remove it");
  }
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

bool is_run_in_use(const std::string& path) {
  const std::string file = path + "/" + kLock;
  if (const auto listed = is_listed_as_locked(file)) return *listed;
  const Descriptor lock(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (lock.number() < 0) return errno != ENOENT;
  return ::flock(lock.number(), LOCK_SH | LOCK_NB) < 0;
}

std::string numbered_path(const std::string& output_dir, int64_t number) {
  const std::string first = plain_path(output_dir);
  return number == 1 ? first : first + "-" + std::to_string(number);
}

RunFolder RunFolder::open(const std::string& output_dir, const RecipeFile& recipe, const Compare& compare,
                          Resume resume) {
  const std::string base = plain_path(output_dir);
  RunFolder run;
  run.recipe_ = recipe;
  std::string why;   // of the first folder passed over
  std::string hint;  // what to do about it
  constexpr int kMostRuns = 100'000;
  for (int number = 1; number <= kMostRuns; ++number) {
    run.path_ = numbered_path(output_dir, number);
    Finding finding = look_into(run.path_, compare, resume);
    std::string holder;
    if (finding.content != Content::kOther) {
      create_folders(run.path_);
      std::optional<Descriptor> lock = trainrun::lock(run.path_, holder, run.notes_);
      if (lock) {
        finding = look_into(run.path_, compare, resume);  // what came while we had no lock
        run.lock_ = std::move(*lock);
      } else {
        finding = {Content::kOther, "is in use by " + holder};
      }
    }
    if (finding.content == Content::kOther) {
      run.lock_ = Descriptor();
      if (why.empty()) {
        why = run.path_ + " " + finding.words;
        if (finding.saved_nothing && !is_run_in_use(run.path_)) hint = way_to_free(run.path_);
      }
      continue;
    }
    run.continues_ = finding.content == Content::kUnfinished;
    run.remove_leftovers();
    if (!run.continues_) run.write_recipe();
    run.has_changes_ = run.continues_ && !finding.changes.empty();
    if (!why.empty()) run.notes_.push_back(why + "; this one goes to " + run.path_ + hint);
    if (run.continues_) {
      run.notes_.push_back(finding.saved_nothing ? "takes over " + run.path_ +
                                                       ", where this recipe's last run stopped before it saved anything"
                                                 : "resumes the unfinished run in " + run.path_);
    }
    for (const std::string& change : finding.changes) run.notes_.push_back("in this start, " + change);
    return run;
  }
  throw Error(base + " and the " + std::to_string(kMostRuns) +
              " folders after it hold runs; choose another output_dir");
}

void RunFolder::write_recipe() const {
  if (!recipe_.is_private) {
    write_file_atomically(recipe_path(), recipe_.text);
    return;
  }
  const std::string beside = temporary_path(recipe_path());
  {
    FileWriter file(beside);
    if (::chmod(beside.c_str(), S_IRUSR | S_IWUSR) < 0) throw FileError(beside, "make it private", errno);
    file.write(recipe_.text);
    file.finish();
  }
  rename_path(beside, recipe_path());
  sync_folder(path_);
}

void RunFolder::remove_leftovers() const {
  std::vector<std::string> leftovers;
  std::error_code error;
  for (fs::directory_iterator it(path_, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    const bool is_ours = std::any_of(kWritten.begin(), kWritten.end(),
                                     [&](const char* written) { return is_temporary_name(name, written); });
    if (is_ours) leftovers.push_back(it->path().string());
  }
  if (error) throw FileError(path_, "look into the folder", error.value());
  for (const std::string& leftover : leftovers) remove_all(leftover);
}

bool RunFolder::is_still_there() const {
  struct stat held{};
  struct stat named{};
  if (::fstat(lock_.number(), &held) < 0) return true;  // it cannot be told
  const bool found = ::lstat((path_ + "/" + kLock).c_str(), &named) == 0;
  if (!found) return errno != ENOENT && errno != ENOTDIR;
  return held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

bool RunFolder::make_whole() {
  if (is_still_there()) return false;
  create_folders(path_);
  std::string holder;
  std::optional<Descriptor> taken = trainrun::lock(path_, holder, notes_);
  if (!taken) throw Error(path_ + " was removed or renamed during the run, and is now in use by " + holder);
  const bool had_recipe = exists(recipe_path());
  if (had_recipe && !has_changes_ && read_file(recipe_path(), kMostRecipeFileBytes) != recipe_.text) {
    throw Error(path_ + " was removed or renamed during the run, and now holds another run");
  }
  lock_ = std::move(*taken);
  if (!had_recipe) write_recipe();
  return !had_recipe;
}

void RunFolder::keep_changes() {
  if (std::exchange(has_changes_, false)) write_recipe();
}

void RunFolder::finish(const std::string& summary_json) {
  make_whole();
  write_file_atomically(summary_path(), summary_json);
}

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
