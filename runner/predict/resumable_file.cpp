#include "runner/predict/resumable_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>

#include "registry/formats/files/file_io.h"
#include "registry/language/error.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// Null: there is none, or it is torn.
json read_journal(const std::string& path) {
  if (!fs::exists(path)) return nullptr;
  constexpr uint64_t kMost = 1 << 24;
  const json found = json::parse(read_file(path, kMost), nullptr, /*allow_exceptions=*/false);
  return found.is_object() ? found : json();
}

void sync_file(const std::string& path) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  const bool fails = file < 0 || ::fsync(file) != 0;
  const int fault = errno;
  if (file >= 0) ::close(file);
  if (fails) throw FileError(path, "sync", fault);
}

}  // namespace

ResumableFile::ResumableFile(std::string path, json identity) : path_(std::move(path)), identity_(std::move(identity)) {
  const fs::path folder = fs::path(path_).parent_path();
  if (!folder.empty()) create_folders(folder.string());
  if (!take_up()) {
    remove_all(journal());
    remove_all(partial());
  }
  file_ = std::make_unique<AppendedFile>(partial());
}

ResumableFile::~ResumableFile() {
  std::error_code fault;  // which nothing can be done about
  if (file_ && !fs::exists(journal(), fault)) fs::remove(partial(), fault);
}

/// Whether there is a file to go on with, which then ends where it was marked last.
bool ResumableFile::take_up() {
  if (!fs::exists(partial())) return false;
  const json found = read_journal(journal());
  if (!found.is_object() || found.value("identity", json()) != identity_) {
    note_ = partial() + " is of other predictions, or of another checkpoint, and is begun anew";
    return false;
  }
  const auto bytes = found.value("bytes", uint64_t{0});
  if (fs::file_size(partial()) < bytes) {
    note_ = partial() + " is shorter than its journal says, and is begun anew";
    return false;
  }
  fs::resize_file(partial(), bytes);
  num_bytes_ = bytes;
  begin_ = {found.value("read", int64_t{0}), found.value("written", int64_t{0}), found.value("left_out", int64_t{0})};
  note_ = partial() + " goes on after its " + std::to_string(begin_.num_written) + " rows";
  return true;
}

void ResumableFile::write(std::string_view text) {
  file_->append(text);
  num_bytes_ += text.size();
}

void ResumableFile::mark(const PredictionPoint& point) {
  sync_file(partial());
  const json state = {{"identity", identity_},
                      {"bytes", num_bytes_},
                      {"read", point.num_read},
                      {"written", point.num_written},
                      {"left_out", point.num_left_out}};
  write_file_atomically(journal(), state.dump());
}

void ResumableFile::finish() {
  sync_file(partial());
  file_.reset();
  rename_path(partial(), path_);
  remove_all(journal());
  sync_folder(fs::path(path_).has_parent_path() ? fs::path(path_).parent_path().string() : ".");
}

}  // namespace trainrun
