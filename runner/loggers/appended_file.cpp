#include "runner/loggers/appended_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace trainrun {

AppendedFile::AppendedFile(std::string path) : path_(std::move(path)) { reopen(); }

Descriptor AppendedFile::open() const {
  return Descriptor(::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666));
}

void AppendedFile::reopen() {
  file_ = open();
  if (file_.number() < 0) throw FileError(path_, "open", errno);
}

bool AppendedFile::is_removed() const {
  struct stat status{};
  return ::fstat(file_.number(), &status) == 0 && status.st_nlink == 0;
}

bool AppendedFile::made_anew() {
  if (!is_removed()) return false;
  Descriptor file = open();
  if (file.number() < 0) return false;
  file_ = std::move(file);
  return true;
}

void AppendedFile::append(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file_.number(), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw FileError(path_, "write", errno);
    text.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace trainrun
