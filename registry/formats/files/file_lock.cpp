#include "registry/formats/files/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>

namespace trainrun {

FileLock::FileLock(const std::string& path) : file_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
  if (file_.number() < 0) throw FileError(path, "create", errno);
  while (flock(file_.number(), LOCK_EX) != 0) {
    if (errno != EINTR) throw FileError(path, "lock", errno);
  }
}

}  // namespace trainrun
