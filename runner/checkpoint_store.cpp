#include "runner/checkpoint_store.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>
#include <utility>

#include "registry/files/file_io.h"
#include "runner/checkpoint_state.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Warn = std::function<void(const std::string&)>;

constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kOptimizerFile = "optimizer.safetensors";
constexpr const char* kStateFile = "state.json";
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

FileDigest write_tensors(const std::string& path, const NamedTensors& tensors) {
  FileWriter file(path);
  write_safetensors(file, tensors);
  return file.finish();
}

void write_checkpoint(const std::string& path, const CheckpointContent& content, bool is_best) {
  remove_all(path);
  std::error_code error;
  fs::create_directory(path, error);
  if (error) throw FileError(path, "create the folder", error.value());
  CheckpointState state{content.state, {}, is_best};
  state.files[kModelFile] = write_tensors(inside(path, kModelFile), content.model);
  state.files[kOptimizerFile] = write_tensors(inside(path, kOptimizerFile), content.optimizer);
  FileWriter file(inside(path, kStateFile));
  file.write(to_text(state));
  file.finish();
  sync_folder(path);
}

CheckpointState read_state(const std::string& path) {
  const std::string file = inside(path, kStateFile);
  try {
    return parse_checkpoint_state(read_file(file, kMostStateBytes));
  } catch (const DataError& error) {
    throw CheckpointError(path + ": no whole checkpoint: " + error.what());
  }
}

[[noreturn]] void throw_mismatch(const std::string& file, const FileDigest& expected, const FileDigest& found) {
  throw CheckpointError(file + ": is damaged: expected SHA-256 " + expected.sha256 + " (" +
                        std::to_string(expected.bytes) + " bytes), found " + found.sha256 + " (" +
                        std::to_string(found.bytes) + " bytes); resume from another checkpoint");
}

void verify_file(const std::string& file, const FileDigest& expected) {
  FileDigest found;
  try {
    found = digest_file(file);
  } catch (const DataError& error) {
    throw CheckpointError(error.what());
  }
  if (found != expected) throw_mismatch(file, expected, found);
}

NamedTensors read_tensors(const std::string& path, const CheckpointState& state, const char* name) {
  const std::string file = inside(path, name);
  const auto expected = state.files.find(name);
  if (expected == state.files.end()) throw CheckpointError(inside(path, kStateFile) + ": names no file " + name);
  SafetensorsContent content;
  try {
    content = read_safetensors(file, FileReader::Hashing::kOn);
  } catch (const DataError& error) {
    verify_file(file, expected->second);  // says that it is damaged, if that is why
    throw CheckpointError(error.what());
  }
  if (content.digest != expected->second) throw_mismatch(file, expected->second, content.digest);
  return std::move(content.tensors);
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
    std::error_code error;
    const uintmax_t bytes = fs::file_size(inside(path, name), error);
    if (error) throw CheckpointError(inside(path, name) + ": " + error.message());
    if (bytes != static_cast<uintmax_t>(expected.bytes)) {
      throw CheckpointError(inside(path, name) + ": has " + std::to_string(bytes) + " bytes, expected " +
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

bool is_checkpoint_name(const std::string& folder, const std::string& name) {
  std::error_code error;
  return !name.starts_with('.') && fs::symlink_status(inside(folder, name), error).type() == fs::file_type::directory;
}

/// The checkpoints of a folder that look whole, by step.
std::vector<Found> scan(const std::string& folder, const Warn& warn) {
  std::vector<Found> found;
  for (const std::string& name : names_in(folder)) {
    if (!is_checkpoint_name(folder, name)) continue;
    try {
      found.push_back({step_of_whole(inside(folder, name)), name});
    } catch (const CheckpointError& error) {
      warn(std::string("checkpoint passed over: ") + error.what());
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

/// What a link names, or "".
std::string target_of(const std::string& folder, const std::string& link) {
  std::error_code error;
  return fs::read_symlink(inside(folder, link), error).string();
}

void check_name(const std::string& name) {
  const bool is_plain = !name.empty() && !name.starts_with('.') && name.find('/') == std::string::npos;
  if (!is_plain || name == kLatest || name == kBest) throw Error("'" + name + "' is no name for a checkpoint");
}

void ignore(const std::string&) {}

}  // namespace

CheckpointStore::CheckpointStore(std::string folder, RetentionPolicy policy)
    : folder_(std::move(folder)), policy_(policy) {}

std::string CheckpointStore::path_of(const std::string& name) const { return inside(folder_, name); }

std::string CheckpointStore::save(const std::string& name, const CheckpointContent& content, bool is_best) {
  check_name(name);
  create_folders(folder_);
  const std::string beside = temporary_path(path_of(name));
  {
    const Unfinished unfinished(beside);  // after put_in_place: what was replaced
    write_checkpoint(beside, content, is_best);
    put_in_place(beside, name);
  }
  replace_link(name, path_of(kLatest));
  if (is_best) replace_link(name, path_of(kBest));
  sync_folder(folder_);
  apply_retention(name);
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

void CheckpointStore::mark_best(const std::string& name) {
  check_name(name);
  read_state(path_of(name));
  replace_link(name, path_of(kBest));
  sync_folder(folder_);
  apply_retention(name);
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
  for (const Found& found : scan(folder_, ignore)) names.push_back(found.name);
  return names;
}

/// Never removes `newest`: after a resume from an older checkpoint, later ones of the abandoned future may still lie
/// there.
void CheckpointStore::apply_retention(const std::string& newest) {
  if (policy_.keep_last <= 0) return;
  const std::vector<Found> found = scan(folder_, ignore);
  const std::string best = policy_.keep_best ? target_of(folder_, kBest) : "";
  const size_t excess = found.size() - std::min(found.size(), static_cast<size_t>(policy_.keep_last));
  for (size_t i = 0; i < excess; ++i) {
    if (found[i].name != best && found[i].name != newest) discard(found[i].name);
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
    if (!name.starts_with('.')) continue;
    if (name.ends_with(kReplacedMark)) {
      const std::string original = name.substr(1, name.size() - 1 - std::string_view(kReplacedMark).size());
      std::error_code error;
      if (fs::exists(path_of(original), error)) {
        remove_all(path_of(name));
      } else {
        rename_path(path_of(name), path_of(original));
      }
    } else if (name.find(kTemporaryMark) != std::string::npos) {
      remove_all(path_of(name));
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
  const std::vector<Found> found = scan(folder, warn);
  for (auto it = found.rbegin(); it != found.rend(); ++it) {
    std::string path = inside(folder, it->name);
    try {
      verify(path);
      return path;
    } catch (const CheckpointError& error) {
      warn(std::string("checkpoint passed over: ") + error.what());
    }
  }
  return std::nullopt;
}

json CheckpointStore::verify(const std::string& path) {
  const CheckpointState state = read_state(path);
  for (const auto& [name, expected] : state.files) verify_file(inside(path, name), expected);
  return state.content;
}

CheckpointContent CheckpointStore::load(const std::string& path) {
  std::error_code error;
  const std::string folder = fs::canonical(path, error).string();  // a link may move while it is read
  if (error) throw CheckpointError(path + ": no checkpoint: " + error.message());
  CheckpointState state = read_state(folder);
  NamedTensors model = read_tensors(folder, state, kModelFile);
  NamedTensors optimizer = read_tensors(folder, state, kOptimizerFile);
  return {std::move(model), std::move(optimizer), std::move(state.content)};
}

}  // namespace trainrun
