#include "tools/starter/unpacking.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tools/starter/unpacked_file.h"

namespace trainrun::starter {
namespace {

namespace fs = std::filesystem;

constexpr const char* kList = ".list";
constexpr size_t kShortDigest = 16;

/// A line of a part's list.
struct Entry {
  std::string sha256;
  char kind = '-';  // '-' a file, 'x' one that is executed, 'l' a link
  uint64_t bytes = 0;
  std::string path;
};

std::vector<Entry> entries_in(const std::string& list) {
  std::vector<Entry> entries;
  std::istringstream lines(list);
  Entry entry;
  while (lines >> entry.sha256 >> entry.kind >> entry.bytes && lines.get() == ' ' && std::getline(lines, entry.path)) {
    entries.push_back(entry);
  }
  return entries;
}

std::string other_folder() {
  return "; to unpack somewhere else, add --unpack FOLDER before the verb, or set XDG_CACHE_HOME";
}

[[noreturn]] void throw_unpackable(const std::string& folder, const Part& part, int error_number) {
  const std::string needs =
      error_number == ENOSPC || error_number == EDQUOT
          ? "; " + part.name + " takes " + std::to_string(part.bytes / 1'000'000 + 1) + " MB there"
          : "";
  throw BundleError("cannot unpack into " + folder + ": " + std::strerror(error_number) + needs + other_folder());
}

void require_space(const Part& part, const std::string& root) {
  struct statvfs disk{};
  if (::statvfs(root.c_str(), &disk) == 0 && uint64_t{disk.f_bavail} * disk.f_frsize < part.bytes) {
    throw_unpackable(root, part, ENOSPC);
  }
}

/// What is unpacked is executed: it must not be somebody else's.
void require_own(const std::string& folder) {
  struct stat status{};
  if (::stat(folder.c_str(), &status) < 0 || status.st_uid == ::geteuid() || status.st_uid == 0) return;
  throw BundleError(folder + " belongs to another user, who could have put other programs there" + other_folder());
}

/// Held while one process unpacks a part. File systems without locks: several may unpack, each for itself.
class Lock {
 public:
  explicit Lock(const std::string& path) : file_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
    while (file_ >= 0 && !is_held_) {
      is_held_ = ::flock(file_, LOCK_EX) == 0;
      if (!is_held_ && errno != EINTR) break;
    }
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  ~Lock() {
    if (file_ >= 0) ::close(file_);
  }
  bool is_held() const { return is_held_; }

 private:
  int file_;
  bool is_held_ = false;
};

/// What killed processes left.
void remove_leftovers(const std::string& root, const std::string& beginning) {
  std::error_code ignored;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(root, ignored)) {
    if (entry.path().filename().string().starts_with(beginning)) found.push_back(entry.path());
  }
  for (const fs::path& path : found) fs::remove_all(path, ignored);
}

void write_part(const BundleFile& bundle, const Part& part, const std::string& list, const std::string& folder) {
  for (const Entry& entry : entries_in(list)) {
    const std::string name = part.name + "/" + entry.path;
    const fs::path target = fs::path(folder) / entry.path;
    fs::create_directories(target.parent_path());
    if (entry.kind == 'l') {
      fs::create_symlink(bundle.text(name), target);
    } else {
      write_member(bundle, name, {target.string(), entry.bytes, entry.sha256, entry.kind == 'x'});
    }
  }
  std::ofstream file(fs::path(folder) / kList);
  file << list;
  file.close();
  if (!file) throw WriteError{errno};
}

/// The name of a folder is lasting only once what is in it is.
void sync_files(const std::string& folder, const Part& part) {
  const int opened = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool failed = opened < 0 || ::syncfs(opened) < 0;
  const int error_number = errno;
  if (opened >= 0) ::close(opened);
  if (failed) throw_unpackable(folder, part, error_number);
}

/// Gives `made` the name `folder`. What has the name already is not whole, or another process's, as good as this one.
void put_in_place(const std::string& made, const std::string& folder, const Part& part, const std::string& root) {
  std::error_code failed;
  if (fs::exists(folder, failed) && !is_unpacked(part, root)) {
    const std::string old = made + "-old";
    fs::rename(folder, old, failed);
    fs::remove_all(old, failed);
  }
  fs::rename(made, folder, failed);
  if (failed && !is_unpacked(part, root)) throw_unpackable(folder, part, failed.value());
  if (failed) fs::remove_all(made, failed);
}

}  // namespace

std::string folder_of(const Part& part, const std::string& root) {
  return root + "/" + part.name + "-" + part.digest.substr(0, kShortDigest);
}

bool is_unpacked(const Part& part, const std::string& root) {
  const std::string folder = folder_of(part, root);
  std::ifstream file(folder + "/" + kList);
  std::stringstream list;
  list << file.rdbuf();
  if (!file || sha256(list.str()) != part.digest) return false;
  for (const Entry& entry : entries_in(list.str())) {
    struct stat status{};
    if (::lstat((folder + "/" + entry.path).c_str(), &status) < 0) return false;
    if (S_ISREG(status.st_mode) && static_cast<uint64_t>(status.st_size) != entry.bytes) return false;
  }
  return true;
}

std::string unpack(const BundleFile& bundle, const Part& part, const std::string& root) {
  const std::string folder = folder_of(part, root);
  require_own(folder);
  if (is_unpacked(part, root)) return folder;
  const std::string list = bundle.text(part.name + ".list");
  if (sha256(list) != part.digest) {
    throw BundleError(bundle.path() + ": the bundle is damaged: the list of its " + part.name +
                      " has another digest; copy it again");
  }
  std::error_code failed;
  fs::create_directories(root, failed);
  if (failed) throw_unpackable(root, part, failed.value());
  const std::string beginning = "." + part.name + "-" + part.digest.substr(0, kShortDigest);
  const Lock lock(root + "/" + beginning + ".lock");
  if (is_unpacked(part, root)) return folder;
  if (lock.is_held()) remove_leftovers(root, beginning + ".tmp-");
  require_space(part, root);
  const std::string made = root + "/" + beginning + ".tmp-" + std::to_string(::getpid());
  try {
    fs::create_directory(made);
    write_part(bundle, part, list, made);
    sync_files(made, part);
    put_in_place(made, folder, part, root);
  } catch (const fs::filesystem_error& error) {
    fs::remove_all(made, failed);
    throw_unpackable(root, part, error.code().value());
  } catch (const WriteError& error) {
    fs::remove_all(made, failed);
    throw_unpackable(root, part, error.error_number);
  } catch (...) {
    fs::remove_all(made, failed);
    throw;
  }
  return folder;
}

}  // namespace trainrun::starter
