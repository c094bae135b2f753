#include "registry/formats/files/regular_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <array>
#include <cerrno>

namespace trainrun {
namespace {

[[noreturn]] void fail(const std::string& path, int error_number) { throw ReadError(path, "open", error_number); }

[[noreturn]] void refuse(const std::string& path, const char* found) {
  throw DataError(path + ": expected a file, found " + found);
}

void require_regular(const std::string& path, const struct stat& status) {
  if (S_ISREG(status.st_mode)) return;
  refuse(path, S_ISDIR(status.st_mode)    ? "a folder"
               : S_ISFIFO(status.st_mode) ? "a pipe"
               : S_ISSOCK(status.st_mode) ? "a socket"
                                          : "a device");
}

/// Files that say they are regular, and empty, and are what the kernel tells whoever reads them.
bool is_made_by_kernel(const struct statfs& file_system) {
  constexpr std::array<unsigned long, 4> kKinds = {PROC_SUPER_MAGIC, SYSFS_MAGIC, DEBUGFS_MAGIC, TRACEFS_MAGIC};
  for (const unsigned long kind : kKinds) {
    if (static_cast<unsigned long>(file_system.f_type) == kind) return true;
  }
  return false;
}

/// A system call would take what stands before such a character for the whole path, and open another file.
void require_whole(const std::string& path) {
  const size_t end = path.find('\0');
  if (end == std::string::npos) return;
  throw DataError(path.substr(0, end) + "\\0…: a path cannot have a character of code 0");
}

}  // namespace

Descriptor open_regular_file(const std::string& path) {
  require_whole(path);
  struct stat status{};
  if (::stat(path.c_str(), &status) < 0) fail(path, errno);
  require_regular(path, status);  // before it is opened, since that alone may act on a device
  int number = -1;
  do {  // O_NONBLOCK: should a pipe have taken its place meanwhile
    number = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  } while (number < 0 && errno == EINTR);
  if (number < 0) fail(path, errno);
  Descriptor file(number);
  if (::fstat(number, &status) < 0) fail(path, errno);
  require_regular(path, status);
  struct statfs file_system{};
  if (::fstatfs(number, &file_system) < 0) fail(path, errno);
  if (is_made_by_kernel(file_system)) refuse(path, "what the kernel makes up as it is read");
  return file;
}

}  // namespace trainrun
