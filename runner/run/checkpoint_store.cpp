#include "runner/run/checkpoint_store.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "registry/formats/files/file_io.h"
#include "runner/run/checkpoint_state.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Warn = std::function<void(const std::string&)>;

constexpr const char* kLatest = "latest";
constexpr const char* kBest = "best";
constexpr const char* kReplacedMark = ".replaced";

std::string inside(const std::string& folder, const std::string& name) { return (fs::path(folder) / name).string(); }

/// Removes a half-written checkpoint when saving it fails.
class Unfinished {
 public:
  explicit Unfinished(std::string path) : path_(std::move(path)) {}
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;
  ~Unfinished() {
    std::error_code already_failing;
    fs::remove_all(path_, already_failing);
  }

 private:
  std::string path_;
};

/// Which folder has this path: two with one name, one after the other, differ. Nothing where there is none.
std::optional<std::pair<dev_t, ino_t>> identity_of(const std::string& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return std::pair(status.st_dev, status.st_ino);
}

/// What `body` reads of a checkpoint in this folder. If that fails and the folder is not there any more, the checkpoint
/// was removed, whatever seemed wrong with it.
template <class Body>
auto while_it_stays(const std::string& path, const Body& body) {
  const auto before = identity_of(path);
  try {
    return body();
  } catch (const Error&) {
    if (before && identity_of(path) == before) throw;
    throw RemovedCheckpoint(path + " was removed before it could be read, by the run that it is of");
  }
}

/// One checkpoint of a folder, as far as a glance tells.
struct Found {
  int64_t step;
  std::string name;
  bool operator<(const Found& other) const { return std::tie(step, name) < std::tie(other.step, other.name); }
};

/// A glance at a checkpoint: its state, and whether its files are as long as they should be.
int64_t step_of_whole(const std::string& path) {
  const CheckpointState state = read_state(path);
  for (const auto& [name, expected] : state.files) {
    const std::string file = inside(path, name);
    std::error_code error;
    const uintmax_t bytes = fs::file_size(file, error);
    const bool is_missing = error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
    const bool is_other = error == std::errc::is_a_directory || error == std::errc::not_supported;
    if (error && !is_missing && !is_other) throw_unusable(path, file + ": " + error.message());
    if (error) throw CheckpointError(file + ": " + error.message());
    if (bytes != static_cast<uintmax_t>(expected.bytes)) {
      throw CheckpointError(file + ": has " + std::to_string(bytes) + " bytes, expected " +
                            std::to_string(expected.bytes));
    }
  }
  return state.step();
}

/// The names in a folder, sorted; none where it does not exist.
std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (error && error != std::errc::no_such_file_or_directory) throw FileError(folder, "list", error.value());
  std::sort(names.begin(), names.end());
  return names;
}

/// Whether what has a checkpoint's name is a folder, or was one a moment ago; what is no folder is not ours.
bool is_checkpoint(const std::string& folder, const std::string& name) {
  if (!is_checkpoint_name(name)) return false;
  std::error_code error;
  const fs::file_type type = fs::symlink_status(inside(folder, name), error).type();
  if (type == fs::file_type::not_found) return true;
  if (type == fs::file_type::none) throw_unusable(inside(folder, name), error.message());
  return type == fs::file_type::directory;
}

/// What to do about a checkpoint that cannot be judged.
enum class Unusable { kThrow, kLeaveAlone };

/// How many checkpoints could not be read, and why.
struct Passed {
  std::map<std::string, std::string> damaged;  // what is wrong with each, by its name
  size_t removed = 0;
};

/// The checkpoints of a folder that look whole, by step. `passed`: those that do not.
std::vector<Found> scan(const std::string& folder, Unusable unusable, const Warn& warn, Passed* passed = nullptr) {
  std::vector<Found> found;
  for (const std::string& name : names_in(folder)) {
    const std::string path = inside(folder, name);
    try {
      if (!is_checkpoint(folder, name)) continue;
      found.push_back({while_it_stays(path, [&] { return step_of_whole(path); }), name});
    } catch (const RemovedCheckpoint&) {
      if (passed) ++passed->removed;
    } catch (const CheckpointError& error) {
      if (passed) passed->damaged[name] = error.what();
      warn(std::string("skipped a checkpoint: ") + error.what());
    } catch (const UnusableCheckpoint&) {
      if (unusable == Unusable::kThrow) throw;
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

/// What a link names; "" where there is none, nothing where the system does not say.
std::optional<std::string> target_of(const std::string& folder, const std::string& link) {
  std::error_code error;
  const fs::path target = fs::read_symlink(inside(folder, link), error);
  const bool is_none = error == std::errc::no_such_file_or_directory || error == std::errc::invalid_argument;
  if (error && !is_none) return std::nullopt;
  return target.string();
}

void check_name(const std::string& name) {
  if (is_checkpoint_name(name)) return;
  throw Error("'" + name + "' is not a name for a checkpoint; they are called epoch-0003 or step-00000120");
}

/// ".epoch-0003.tmp-1234", ".latest.tmp-1234": what a killed save leaves, and nothing that a user would make.
bool is_unfinished(const std::string& name) {
  const size_t mark = name.rfind(kTemporaryMark);
  if (!name.starts_with('.') || mark == std::string::npos || mark == 0) return false;
  const std::string of = name.substr(1, mark - 1);
  return (is_checkpoint_name(of) || of == kLatest || of == kBest) && is_temporary_name(name, of);
}

void ignore(const std::string&) {}

[[noreturn]] void throw_always_removed(const std::string& folder) {
  throw RemovedCheckpoint(folder + ": " + std::to_string(CheckpointStore::kMostChoices) +
                          " times each checkpoint was removed before it could be read: the run in progress there saves "
                          "faster than that; try again later, or have it keep more (checkpoint.keep_last)");
}

/// With what is wrong with the last one by name: who only reads a run may not have heard of any.
[[noreturn]] void throw_all_damaged(const std::string& folder, const std::map<std::string, std::string>& faults) {
  throw CheckpointError(
      folder + ": " +
      (faults.size() == 1 ? "the only checkpoint is damaged: "
                          : "all " + std::to_string(faults.size()) + " checkpoints are damaged; the last by name: ") +
      faults.rbegin()->second +
      ". Nothing was changed; put back a whole checkpoint, or train with checkpoint.resume=no to "
      "start from the beginning in another folder");
}

}  // namespace

bool is_checkpoint_name(std::string_view name) {
  if (name.ends_with(kRestoredMark)) name.remove_suffix(std::string_view(kRestoredMark).size());
  const size_t dash = name.find('-');
  if (dash == std::string_view::npos) return false;
  const std::string_view word = name.substr(0, dash);
  const std::string_view number = name.substr(dash + 1);
  return (word == "epoch" || word == "step") && !number.empty() &&
         number.find_first_not_of("0123456789") == std::string_view::npos;
}

CheckpointStore::CheckpointStore(std::string folder, RetentionPolicy policy)
    : folder_(std::move(folder)), policy_(policy) {}

std::string CheckpointStore::path_of(const std::string& name) const { return inside(folder_, name); }

std::string CheckpointStore::save(const std::string& name, const CheckpointContent& content, bool is_best) {
  std::string path = add(name, content, is_best);
  apply_retention(name);
  return path;
}

std::string CheckpointStore::add(const std::string& name, const CheckpointContent& content, bool is_best) {
  check_name(name);
  create_folders(folder_);
  const std::string beside = temporary_path(path_of(name));
  {
    const Unfinished unfinished(beside);  // after put_in_place: what was replaced
    remove_all(beside);
    write_checkpoint(beside, content, is_best);
    put_in_place(beside, name);
  }
  replace_link(name, path_of(kLatest));
  if (is_best) replace_link(name, path_of(kBest));
  sync_folder(folder_);
  return path_of(name);
}

void CheckpointStore::put_in_place(const std::string& from, const std::string& name) {
  const std::string path = path_of(name);
  std::error_code error;
  if (!fs::exists(fs::symlink_status(path, error))) {
    rename_path(from, path);
  } else if (!exchange_paths(from, path)) {
    // Without an exchange there is an instant with no checkpoint of this name; remove_leftovers knows its trace.
    const std::string replaced = path_of("." + name + kReplacedMark);
    remove_all(replaced);
    rename_path(path, replaced);
    try {
      rename_path(from, path);
    } catch (const FileError&) {
      rename_path(replaced, path);
      throw;
    }
    sync_folder(folder_);
    remove_all(replaced);
  } else {
    sync_folder(folder_);  // `from` is now what was replaced, and about to go
  }
}

/// The new state lies beside the checkpoints until it is whole, where `remove_leftovers` finds it.
void CheckpointStore::amend(const std::string& name, const json& state, bool is_best) {
  check_name(name);
  const std::string path = path_of(name);
  const std::string beside = temporary_path(path);
  {
    const Unfinished unfinished(beside);
    FileWriter file(beside);
    file.write(to_text(CheckpointState{state, read_state(path).files, is_best}));
    file.finish();
    rename_path(beside, inside(path, kStateFile));
  }
  sync_folder(path);
  if (!is_best) return;
  replace_link(name, path_of(kBest));
  sync_folder(folder_);
  apply_retention(name);
}

std::vector<std::string> CheckpointStore::list() const {
  std::vector<std::string> names;
  for (const Found& found : scan(folder_, Unusable::kThrow, ignore)) names.push_back(found.name);
  return names;
}

/// Never removes `newest`: after a resume from an older checkpoint, later ones of the abandoned future may still lie
/// there.
void CheckpointStore::apply_retention(const std::string& newest) {
  if (policy_.keep_last <= 0) return;
  const std::vector<Found> found = scan(folder_, Unusable::kLeaveAlone, ignore);
  const auto best = policy_.keep_best ? target_of(folder_, kBest) : "";
  if (!best) return;  // which one must stay is not known just now; the next save sees to it
  const size_t excess = found.size() - std::min(found.size(), static_cast<size_t>(policy_.keep_last));
  for (size_t i = 0; i < excess; ++i) {
    if (found[i].name != *best && found[i].name != newest) discard(found[i].name);
  }
}

/// Out of sight in one instant, then file by file.
void CheckpointStore::discard(const std::string& name) {
  if (target_of(folder_, kBest) == name) remove_all(path_of(kBest));
  const std::string beside = temporary_path(path_of(name));
  remove_all(beside);
  rename_path(path_of(name), beside);
  remove_all(beside);
}

void CheckpointStore::remove_leftovers() {
  for (const std::string& name : names_in(folder_)) {
    if (is_unfinished(name)) {
      remove_all(path_of(name));
    } else if (name.starts_with('.') && name.ends_with(kReplacedMark)) {
      const std::string original = name.substr(1, name.size() - 1 - std::string_view(kReplacedMark).size());
      if (!is_checkpoint_name(original)) continue;
      std::error_code error;
      if (fs::exists(path_of(original), error)) {
        remove_all(path_of(name));
      } else {
        rename_path(path_of(name), path_of(original));
      }
    }
  }
}

std::optional<std::string> CheckpointStore::newest(const Warn& warn) {
  remove_leftovers();
  std::optional<std::string> path = find_newest(folder_, warn);
  if (!path) return path;
  const std::string name = fs::path(*path).filename().string();
  if (target_of(folder_, kLatest) != name) replace_link(name, path_of(kLatest));
  if (read_state(*path).is_best && target_of(folder_, kBest) != name) replace_link(name, path_of(kBest));
  return path;
}

std::optional<std::string> CheckpointStore::find_newest(const std::string& folder, const Warn& warn) {
  Passed passed;
  for (int choice = 0; choice < kMostChoices; ++choice) {
    passed = {};
    const std::vector<Found> found = scan(folder, Unusable::kThrow, warn, &passed);
    for (auto it = found.rbegin(); it != found.rend(); ++it) {
      std::string path = inside(folder, it->name);
      try {
        verify(path);
        return path;
      } catch (const RemovedCheckpoint&) {
        ++passed.removed;
      } catch (const CheckpointError& error) {
        passed.damaged[it->name] = error.what();
        warn(std::string("skipped a checkpoint: ") + error.what());
      }
    }
    if (passed.removed == 0) break;
  }
  if (passed.removed > 0) throw_always_removed(folder);
  if (passed.damaged.empty()) return std::nullopt;
  throw_all_damaged(folder, passed.damaged);
}

json CheckpointStore::verify(const std::string& path) {
  return while_it_stays(path, [&] {
    const CheckpointState state = read_state(path);
    verify_files(path, state);
    return state.content;
  });
}

CheckpointContent CheckpointStore::load(const std::string& path) {
  std::error_code error;
  const std::string folder = fs::canonical(path, error).string();  // a link may move while it is read
  const bool is_missing = error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
  if (error && !is_missing) throw_unusable(path, error.message());
  if (error) throw RemovedCheckpoint(path + ": is not a checkpoint: " + error.message());
  return while_it_stays(folder, [&] { return read_checkpoint(folder); });
}

}  // namespace trainrun
