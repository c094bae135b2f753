#include "runner/loggers/appended_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace trainrun {

AppendedFile::AppendedFile(std::string path, Readers readers) : path_(std::move(path)), readers_(readers) { reopen(); }

Descriptor AppendedFile::open() const {
  const mode_t mode = readers_ == Readers::kAll ? 0666 : 0600;
  Descriptor file(::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, mode));
  struct stat status{};
  const bool is_there = file.number() >= 0 && ::fstat(file.number(), &status) == 0 && S_ISREG(status.st_mode);
  if (is_there && readers_ == Readers::kOwner && ::fchmod(file.number(), mode) != 0) {
    throw FileError(path_, "make private", errno);
  }
  return file;
}

void AppendedFile::reopen() {
  Descriptor file = open();
  if (file.number() < 0) throw FileError(path_, "open", errno);
  file_ = std::move(file);
  piece_at_.reset();
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
  piece_at_.reset();
  return true;
}

bool AppendedFile::cut_off_piece() {
  if (piece_at_ && ::ftruncate(file_.number(), *piece_at_) != 0) return false;
  piece_at_.reset();
  return true;
}

void AppendedFile::append(std::string_view text) {
  if (!cut_off_piece()) throw FileError(path_, "cut off half a line of", errno);
  struct stat before{};
  const bool can_be_cut = ::fstat(file_.number(), &before) == 0 && S_ISREG(before.st_mode);
  while (!text.empty()) {
    const ssize_t written = ::write(file_.number(), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int error = errno;
      if (can_be_cut) piece_at_ = before.st_size;
      cut_off_piece();
      throw FileError(path_, "write", error);
    }
    text.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace trainrun
