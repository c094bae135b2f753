#include "registry/formats/web/download.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>

#include "registry/formats/web/transfer.h"
#include "registry/language/error.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;

constexpr long kRangeNotSatisfiable = 416;
constexpr int kMostInterruptions = 5;  // of one url without an answer that says more

[[noreturn]] void fail(const std::string& path, const std::string& operation) {
  throw DataError(path + ": cannot " + operation + ": " + std::strerror(errno));
}

/// The file a download grows in; locked, so that one process at a time writes it.
class PartFile {
 public:
  explicit PartFile(std::string path) : path_(std::move(path)) {
    descriptor_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (descriptor_ < 0) fail(path_, "create");
    while (flock(descriptor_, LOCK_EX) != 0) {
      if (errno == EINTR) continue;
      const int cause = errno;
      close(descriptor_);
      errno = cause;
      fail(path_, "lock");
    }
  }
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;
  ~PartFile() { close(descriptor_); }

  /// Is this still the file of that name? (Who had the lock before may have renamed it.)
  bool is_named() const {
    struct stat mine{};
    struct stat named{};
    return fstat(descriptor_, &mine) == 0 && stat(path_.c_str(), &named) == 0 && mine.st_ino == named.st_ino &&
           mine.st_dev == named.st_dev;
  }
  int64_t size() const {
    struct stat status{};
    if (fstat(descriptor_, &status) != 0) fail(path_, "read");
    return status.st_size;
  }
  void clear() {
    if (ftruncate(descriptor_, 0) != 0) fail(path_, "write");
  }
  bool append(const char* data, size_t size) const {
    if (lseek(descriptor_, 0, SEEK_END) < 0) return false;
    while (size > 0) {
      const ssize_t written = write(descriptor_, data, size);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return false;
      data += written;
      size -= static_cast<size_t>(written);
    }
    return true;
  }
  void sync() {
    if (fsync(descriptor_) != 0) fail(path_, "write");
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int descriptor_ = -1;
};

/// One request: everything from the end of `part` on.
WebAnswer request(const std::string& url, PartFile& part, const Download& job) {
  WebRequest request;
  request.url = url;
  request.first_byte = part.size();
  request.stall_seconds = job.stall_seconds;
  request.token = job.token;
  request.retries = job.retries;
  int write_error = 0;
  request.on_data = [&](const char* data, size_t size) {
    if (part.append(data, size)) return true;
    write_error = errno;
    return false;
  };
  request.on_progress = job.on_progress;
  WebAnswer answer = send(request);
  if (write_error) {
    errno = write_error;
    fail(part.path(), "write");
  }
  return answer;
}

/// Fetches from one url, going on after interruptions as long as each brings bytes. Returns what went wrong, or
/// nothing.
std::optional<std::string> fetch(const std::string& url, PartFile& part, const Download& job) {
  for (int interruptions = 0; interruptions <= kMostInterruptions; ++interruptions) {
    const int64_t before = part.size();
    const WebAnswer answer = request(url, part, job);
    if (answer.fault == WebAnswer::Fault::kNone) return std::nullopt;
    if (answer.status == kRangeNotSatisfiable && before > 0) return std::nullopt;  // it may be whole already
    if (answer.fault == WebAnswer::Fault::kNoRanges) {
      part.clear();
      continue;
    }
    const bool interrupted = part.size() > before;
    if (!interrupted) return answer.message;
  }
  return "interrupted again and again";
}

/// Fetches and verifies; what was left by an earlier attempt may be of another file, so a second time from the start.
std::optional<std::string> fetch_verified(const std::string& url, PartFile& part, const Download& job) {
  while (true) {
    const bool from_start = part.size() == 0;
    if (const auto fault = fetch(url, part, job)) return fault;
    try {
      job.verify(part.path());
      return std::nullopt;
    } catch (const DataError& error) {
      part.clear();
      if (from_start) return error.what();
    }
  }
}

}  // namespace

void download(const Download& job) {
  std::error_code error;
  const fs::path destination(job.destination);
  const std::string part_path = job.part.empty() ? job.destination + ".part" : job.part;
  if (destination.has_parent_path()) fs::create_directories(destination.parent_path(), error);
  if (error) throw DataError(destination.parent_path().string() + ": cannot create the folder: " + error.message());
  while (!fs::exists(destination)) {
    PartFile part(part_path);
    if (!part.is_named()) continue;  // another process finished it while we waited for the lock, …
    if (fs::exists(destination)) {   // … or just before we opened it
      fs::remove(part.path());
      return;
    }
    std::vector<std::string> faults;
    for (const std::string& url : job.urls) {
      if (const auto fault = fetch_verified(url, part, job)) {
        faults.push_back(url + ": " + *fault);
        continue;
      }
      part.sync();
      fs::rename(part.path(), destination);
      return;
    }
    throw DataError("cannot download " + destination.filename().string() + "\n  " + join(faults, "\n  ") +
                    "\nTo use a copy of the file, put it at " + job.destination);
  }
}

void download(Download job, FetchProgress progress) {
  job.on_progress = [&](int64_t done, int64_t total) {
    progress.done = done;
    if (total > 0) progress.total = total;
    report_progress(progress);
  };
  download(job);
  progress.finished = true;
  report_progress(progress);
}

}  // namespace trainrun
