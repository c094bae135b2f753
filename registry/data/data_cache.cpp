#include "registry/data/data_cache.h"

#include <cstdlib>
#include <filesystem>

#include "registry/formats/files/file_io.h"
#include "registry/language/error.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;

/// An absolute path in an environment variable, or "": a relative one is to be ignored by XDG's rules.
fs::path path_in(const char* variable) {
  const char* value = std::getenv(variable);
  const fs::path path = value ? value : "";
  return path.is_absolute() ? path : fs::path();
}

/// Whether files can be made in the folder, which is made itself.
bool is_writable(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  return !error && access(folder.c_str(), W_OK) == 0;
}

bool is_wanted(const Download& job, const fs::path& file) {
  std::error_code unreadable;
  if (!fs::exists(file, unreadable)) return false;
  try {
    job.verify(file.string());
    return true;
  } catch (const DataError&) {
    return false;
  }
}

/// Makes `file` appear at `destination` as well, whole or not at all; false where that cannot be.
bool give(const fs::path& file, const fs::path& destination) {
  std::error_code error;
  fs::create_directories(destination.parent_path(), error);
  fs::create_hard_link(file, destination, error);
  if (!error || fs::exists(destination, error)) return true;
  const fs::path part = temporary_path(destination.string());  // on another file system
  fs::copy_file(file, part, error);
  if (!error) fs::rename(part, destination, error);
  if (!error) return true;
  std::error_code ignored;
  fs::remove(part, ignored);
  return false;
}

}  // namespace

std::string cache_folder() {
  if (const fs::path chosen = path_in("TRAINRUN_CACHE"); !chosen.empty()) return chosen.string();
  if (const fs::path caches = path_in("XDG_CACHE_HOME"); !caches.empty()) return (caches / "trainrun").string();
  if (const fs::path home = path_in("HOME"); !home.empty()) return (home / ".cache/trainrun").string();
  return "";
}

std::string kept_path(const std::string& what, const std::string& key) {
  const std::string caches = cache_folder();
  if (caches.empty()) {
    throw DataError("cache: disk needs a folder to keep " + what + " in; set TRAINRUN_CACHE to one");
  }
  const std::string folder = caches + "/" + what;
  create_folders(folder);
  return folder + "/" + key;
}

void remove_unfinished(const std::string& path) {
  const fs::path file(path);
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(file.parent_path(), ignored)) {
    if (is_temporary_name(entry.path().filename().string(), file.filename().string())) fs::remove(entry, ignored);
  }
}

std::string download_shared(const Download& job, const std::string& name) {
  const std::string folder = cache_folder();
  const fs::path cached = fs::path(folder) / "data" / name;
  if (folder.empty() || (!is_writable(cached.parent_path()) && !is_wanted(job, cached))) {
    download(job);
    return job.destination;
  }
  if (!is_wanted(job, cached)) {
    std::error_code not_there;
    fs::remove(cached, not_there);
    Download into_cache = job;
    into_cache.destination = cached.string();
    download(into_cache);
  }
  return give(cached, job.destination) ? job.destination : cached.string();
}

}  // namespace trainrun
