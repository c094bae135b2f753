#include "runner/sweep/journal.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "registry/formats/files/file_io.h"
#include "registry/language/error.h"

namespace trainrun {
namespace {

constexpr uint64_t kMostJournalBytes = uint64_t{1} << 30;
constexpr int kLockPatience = 2000;  // milliseconds, that what a killed sweep leaves may hold the journal
constexpr int kLockRetry = 20;       // milliseconds, between two tries to lock it

/// `end`: where the last whole line ends.
std::vector<nlohmann::json> entries_of(const std::string& path, size_t& end) {
  std::vector<nlohmann::json> entries;
  end = 0;
  if (!std::filesystem::exists(path)) return entries;
  const std::string text = read_file(path, kMostJournalBytes);
  for (size_t next; (next = text.find('\n', end)) != std::string::npos; end = next + 1) {
    entries.push_back(nlohmann::json::parse(text.substr(end, next - end), nullptr, /*allow_exceptions=*/false));
    const bool is_one = entries.back().is_object() && entries.back().contains("event");
    if (is_one) continue;
    throw DataError(path + ":" + std::to_string(entries.size()) +
                    ": this is not a line of a sweep's journal, a JSON object with an \"event\"; if the file is "
                    "damaged, remove it: trials that are finished are found again in their folders");
  }
  return entries;
}

/// Waits a little for a lock: a trial that was about to start when its sweep was killed holds the journal until the
/// kernel gets round to ending it.
void lock_journal(int file, const std::string& path) {
  for (int waited = 0; ::flock(file, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK; waited += kLockRetry) {
    if (waited < kLockPatience) {
      ::poll(nullptr, 0, kLockRetry);
      continue;
    }
    throw Error(path + " is in use: another process runs this sweep; wait for it, or write --output FOLDER");
  }
}

}  // namespace

Journal::Journal(std::string path) : path_(std::move(path)) {
  file_ = Descriptor(::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666));
  if (file_.number() < 0) throw FileError(path_, "open", errno);
  lock_journal(file_.number(), path_);
  size_t end = 0;
  entries_ = entries_of(path_, end);
  if (::ftruncate(file_.number(), static_cast<off_t>(end)) < 0) throw FileError(path_, "cut off half a line of", errno);
}

std::vector<nlohmann::json> Journal::read(const std::string& path) {
  size_t end = 0;
  return entries_of(path, end);
}

void Journal::append(nlohmann::json entry) {
  const std::string line = entry.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  for (size_t done = 0; done < line.size();) {
    const ssize_t written = ::write(file_.number(), line.data() + done, line.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw FileError(path_, "write", errno);  // half a line: cut off when the sweep goes on
    done += static_cast<size_t>(written);
  }
  if (::fdatasync(file_.number()) < 0) throw FileError(path_, "sync", errno);
  entries_.push_back(std::move(entry));
}

}  // namespace trainrun
