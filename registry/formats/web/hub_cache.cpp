#include "registry/formats/web/hub_cache.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>

#include "registry/formats/files/file_io.h"
#include "registry/language/error.h"
#include "registry/language/text_view.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostSmallBytes = 1 << 16;  // of a file with a token or a commit

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

/// The path with the user's folder in place of "~".
std::string expanded(const std::string& path) {
  const bool is_home = path == "~" || path.starts_with("~/");
  return is_home ? variable("HOME") + path.substr(1) : path;
}

/// `name` in the folder for caches; "" where that is unknown.
std::string in_caches(const std::string& name) {
  if (const std::string caches = variable("XDG_CACHE_HOME"); !caches.empty()) return caches + "/" + name;
  const std::string home = variable("HOME");
  return home.empty() ? "" : home + "/.cache/" + name;
}

std::string huggingface_home() {
  const std::string chosen = variable("HF_HOME");
  return chosen.empty() ? in_caches("huggingface") : expanded(chosen);
}

bool is_true(std::string value) {
  for (char& c : value) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return value == "1" || value == "ON" || value == "YES" || value == "TRUE";
}

/// The content of a small file without spaces around it; "" where it cannot be read.
std::string small_file(const std::string& path) {
  std::error_code unreadable;
  if (path.empty() || !fs::is_regular_file(path, unreadable)) return "";
  return std::string(without_space(read_file(path, kMostSmallBytes)));
}

std::string without_last_slashes(std::string text) {
  while (text.ends_with('/')) text.pop_back();
  return text;
}

}  // namespace

std::string hub_cache_folder() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (const std::string chosen = variable(name); !chosen.empty()) return without_last_slashes(expanded(chosen));
  }
  const std::string home = huggingface_home();
  return home.empty() ? "" : without_last_slashes(home) + "/hub";
}

std::string torch_cache_folder() {
  const std::string chosen = variable("TORCH_HOME");
  const std::string home = chosen.empty() ? in_caches("torch") : expanded(chosen);
  return home.empty() ? "" : without_last_slashes(home) + "/hub/checkpoints";
}

std::string hub_endpoint() {
  const std::string chosen = without_last_slashes(variable("HF_ENDPOINT"));
  return chosen.empty() ? "https://huggingface.co" : chosen;
}

std::string hub_page(const HubName& name) {
  return hub_endpoint() + (name.kind == HubKind::kDataset ? "/datasets/" : "/") + name.id;
}

std::string hub_token() {
  if (is_true(variable("HF_HUB_DISABLE_IMPLICIT_TOKEN"))) return "";
  for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}) {
    std::string token = variable(name);
    std::erase_if(token, [](unsigned char c) { return std::isspace(c) || std::iscntrl(c); });
    if (!token.empty()) return token;
  }
  const std::string path = variable("HF_TOKEN_PATH");
  if (!path.empty()) return small_file(expanded(path));
  const std::string home = huggingface_home();
  return home.empty() ? "" : small_file(home + "/token");
}

std::string offline_variable(HubKind kind) {
  for (const char* name : {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"}) {
    if (is_true(variable(name))) return name;
  }
  constexpr const char* kOfDatasets = "HF_DATASETS_OFFLINE";
  return kind == HubKind::kDataset && is_true(variable(kOfDatasets)) ? kOfDatasets : "";
}

HubCache::HubCache(const HubName& name) : name_(name) {
  const std::string cache = hub_cache_folder();
  if (cache.empty()) {
    throw DataError(name.text() + ": there is no folder for Hugging Face's cache; set HF_HOME or HOME to one");
  }
  folder_ = cache + "/" + name.folder();
  locks_ = cache + "/.locks/" + name.folder();
}

std::optional<std::string> HubCache::commit() const {
  if (is_commit(name_.revision)) return name_.revision;
  const std::string found = small_file(folder_ + "/refs/" + name_.revision);
  return is_commit(found) ? std::optional(found) : std::nullopt;
}

void HubCache::link(const std::string& commit, const std::string& file, const std::string& etag) const {
  const fs::path link = fs::path(snapshot(commit)) / file;
  create_folders(link.parent_path().string());
  const std::string target = fs::path(blob(etag)).lexically_relative(link.parent_path()).string();
  std::error_code error;
  if (fs::is_symlink(link, error) && fs::read_symlink(link, error) == target) return;
  replace_link(target, link.string());
}

void HubCache::note_missing(const std::string& commit, const std::string& file) const {
  const fs::path note = fs::path(folder_) / ".no_exist" / commit / file;
  if (fs::exists(note)) return;
  create_folders(note.parent_path().string());
  write_file_atomically(note.string(), "");
}

void HubCache::set_commit(const std::string& commit) const {
  if (name_.revision == commit || HubCache::commit() == commit) return;
  const fs::path file = fs::path(folder_) / "refs" / name_.revision;
  create_folders(file.parent_path().string());
  write_file_atomically(file.string(), commit);
}

}  // namespace trainrun
