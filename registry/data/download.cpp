#include "registry/data/download.h"

#include <curl/curl.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>

#include "registry/language/error.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;

constexpr long kConnectSeconds = 20;
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

struct Transfer {
  PartFile& part;
  int write_error = 0;
};

size_t on_data(char* data, size_t size, size_t count, void* target) {
  auto& transfer = *static_cast<Transfer*>(target);
  if (transfer.part.append(data, size * count)) return size * count;
  transfer.write_error = errno;
  return 0;
}

struct Answer {
  CURLcode code = CURLE_OK;
  long status = 0;
  std::string message;
};

/// Where this system keeps the certificates that it trusts, or "" for where libcurl looks: in the place of the system
/// that it was built for, while a wheel's libcurl runs on others, too.
std::string trusted_certificates() {
  if (const char* named = std::getenv("SSL_CERT_FILE")) return named;
  for (const char* path : {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                           "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"}) {
    std::error_code unreadable;
    if (fs::exists(path, unreadable)) return path;
  }
  return "";
}

/// One request: everything from the end of `part` on.
Answer request(const std::string& url, PartFile& part, int64_t stall_seconds) {
  static const CURLcode initialised = curl_global_init(CURL_GLOBAL_DEFAULT);
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> handle(curl_easy_init(), &curl_easy_cleanup);
  if (initialised != CURLE_OK || !handle) throw DataError("libcurl cannot be initialised");
  char detail[CURL_ERROR_SIZE] = "";
  Transfer transfer{part};
  const auto set = [&](CURLoption option, auto value) { curl_easy_setopt(handle.get(), option, value); };
  set(CURLOPT_URL, url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
  set(CURLOPT_USERAGENT, "trainrun/" TRAINRUN_VERSION);
  set(CURLOPT_FOLLOWLOCATION, 1L);
  set(CURLOPT_MAXREDIRS, 5L);
  set(CURLOPT_FAILONERROR, 1L);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(stall_seconds));
  set(CURLOPT_RESUME_FROM_LARGE, static_cast<curl_off_t>(part.size()));
  const std::string certificates = trusted_certificates();
  if (!certificates.empty()) set(CURLOPT_CAINFO, certificates.c_str());
  set(CURLOPT_ERRORBUFFER, static_cast<char*>(detail));
  set(CURLOPT_WRITEFUNCTION, &on_data);
  set(CURLOPT_WRITEDATA, static_cast<void*>(&transfer));
  Answer answer;
  answer.code = curl_easy_perform(handle.get());
  curl_easy_getinfo(handle.get(), CURLINFO_RESPONSE_CODE, &answer.status);
  answer.message = detail[0] ? detail : curl_easy_strerror(answer.code);
  if (transfer.write_error) {
    errno = transfer.write_error;
    fail(part.path(), "write");
  }
  return answer;
}

/// Fetches from one url, going on after interruptions as long as each brings bytes. Returns what went wrong, or
/// nothing.
std::optional<std::string> fetch(const std::string& url, PartFile& part, const Download& job) {
  for (int interruptions = 0; interruptions <= kMostInterruptions; ++interruptions) {
    const int64_t before = part.size();
    const Answer answer = request(url, part, job.stall_seconds);
    if (answer.code == CURLE_OK) return std::nullopt;
    if (answer.status == kRangeNotSatisfiable && before > 0) return std::nullopt;  // it may be whole already
    if (answer.code == CURLE_RANGE_ERROR && before > 0) {                          // the server has no ranges
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
  if (destination.has_parent_path()) fs::create_directories(destination.parent_path(), error);
  if (error) throw DataError(destination.parent_path().string() + ": cannot create the folder: " + error.message());
  while (!fs::exists(destination)) {
    PartFile part(job.destination + ".part");
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

}  // namespace trainrun
