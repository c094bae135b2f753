#include "registry/formats/files/file_io.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "registry/formats/files/regular_file.h"

namespace trainrun {
namespace {

constexpr size_t kPiece = size_t{1} << 20;  // hashed while it is in the cache; below the 2 GiB that one write() takes
constexpr int64_t kStretch = int64_t{8} << 20;  // of a file, which the disk takes while the next is hashed

/// So many bytes are worth a thread: they are hashed in 2 ms, and it takes some 50 us to start.
constexpr size_t kWorthAThread = size_t{4} << 20;

/// Repeats a system call that a signal interrupted.
template <class Call>
auto uninterrupted(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

void sync_descriptor(int file, const std::string& path) {
  if (uninterrupted([&] { return ::fsync(file); }) < 0) throw FileError(path, "sync to disk", errno);
}

/// Starts to write to the disk, without waiting, the stretches that were completed as the file grew from `from` bytes to
/// `to`. Where a file system cannot, the sync at the end writes all of it.
void begin_to_sync(int file, int64_t from, int64_t to) {
  const int64_t begin = from / kStretch * kStretch, end = to / kStretch * kStretch;
  if (begin < end) ::sync_file_range(file, begin, end - begin, SYNC_FILE_RANGE_WRITE);
}

/// POSIX leaves open whether an interrupted close() closed; on Linux it did.
void close_checked(Descriptor& file, const std::string& path) {
  if (::close(file.release()) < 0 && errno != EINTR) throw FileError(path, "close", errno);
}

}  // namespace

FileWriter::FileWriter(std::string path, std::shared_ptr<HashThread> hashing)
    : path_(std::move(path)), hashing_(std::move(hashing)) {
  const int file = uninterrupted([&] { return ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666); });
  if (file < 0) throw FileError(path_, "create", errno);
  file_ = Descriptor(file);
  buffer_.reserve(kPiece);
}

FileWriter::~FileWriter() {
  hashing_->wait(hash_);
  if (file_.number() >= 0) ::unlink(path_.c_str());
}

void FileWriter::write(const void* data, size_t size) {
  hashing_->wait(hash_);
  const char* const from = static_cast<const char*>(data);
  for (size_t done = 0; done < size;) {
    const size_t piece = std::min(size - done, kPiece);
    hash_.update(from + done, piece);
    put(from + done, piece);
    done += piece;
  }
}

void FileWriter::write_lasting(const std::vector<std::string_view>& pieces) {
  size_t size = 0;
  for (const std::string_view piece : pieces) size += piece.size();
  if (size < kWorthAThread) {
    for (const std::string_view piece : pieces) write(piece);
    return;
  }
  hashing_->add(hash_, pieces);
  for (const std::string_view piece : pieces) {
    for (size_t done = 0; done < piece.size(); done += kPiece) {
      put(piece.data() + done, std::min(piece.size() - done, kPiece));
    }
  }
}

/// At most kPiece.
void FileWriter::put(const char* data, size_t size) {
  if (buffer_.size() + size > kPiece) flush();
  if (size < kPiece) {
    buffer_.insert(buffer_.end(), data, data + size);
  } else {
    write_through(data, size);
  }
}

void FileWriter::flush() {
  write_through(buffer_.data(), buffer_.size());
  buffer_.clear();
}

void FileWriter::write_through(const char* data, size_t size) {
  const int64_t before = bytes_;
  bytes_ += static_cast<int64_t>(size);
  while (size > 0) {
    const ssize_t written = uninterrupted([&] { return ::write(file_.number(), data, size); });
    if (written < 0) throw FileError(path_, "write", errno);
    data += written;
    size -= static_cast<size_t>(written);
  }
  begin_to_sync(file_.number(), before, bytes_);
}

FileDigest FileWriter::finish() {
  flush();
  sync_descriptor(file_.number(), path_);
  hashing_->wait(hash_);
  try {
    close_checked(file_, path_);
  } catch (const FileError&) {
    ::unlink(path_.c_str());
    throw;
  }
  return {hash_.finish(), bytes_};
}

FileReader::FileReader(std::string path, Hashing hashing) : path_(std::move(path)), hashing_(hashing) {
  file_ = open_regular_file(path_);
  struct stat status{};
  if (::fstat(file_.number(), &status) < 0) throw ReadError(path_, "open", errno);
  size_ = static_cast<uint64_t>(status.st_size);
}

void FileReader::read(void* data, size_t size) {
  char* to = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t found = uninterrupted(
        [&] { return ::pread(file_.number(), to, std::min(size, kPiece), static_cast<off_t>(position_)); });
    if (found < 0) throw ReadError(path_, "read", errno);
    if (found == 0) throw DataError(path_ + ": ends at byte " + std::to_string(position_) + "; the file is cut short");
    if (hashing_ == Hashing::kOn) hash_.update(to, static_cast<size_t>(found));
    to += found;
    position_ += static_cast<uint64_t>(found);
    size -= static_cast<size_t>(found);
  }
}

FileDigest FileReader::digest() { return {hash_.finish(), static_cast<int64_t>(position_)}; }

std::string read_file(const std::string& path, uint64_t most_bytes) {
  FileReader file(path);
  if (file.size() > most_bytes) {
    throw DataError(path + ": has " + std::to_string(file.size()) + " bytes; at most " + std::to_string(most_bytes) +
                    " were expected");
  }
  std::string content(file.size(), '\0');
  file.read(content.data(), content.size());
  return content;
}

FileDigest digest_file(const std::string& path) {
  FileReader file(path, FileReader::Hashing::kOn);
  std::vector<char> piece(size_t{1} << 20);
  for (uint64_t left = file.size(); left > 0;) {
    const size_t size = std::min<uint64_t>(left, piece.size());
    file.read(piece.data(), size);
    left -= size;
  }
  return file.digest();
}

FileDigest write_file_atomically(const std::string& path, const std::function<void(FileWriter&)>& fill) {
  const std::string beside = temporary_path(path);
  FileDigest digest;
  {
    FileWriter file(beside);
    fill(file);
    digest = file.finish();
  }
  try {
    rename_path(beside, path);
  } catch (const FileError&) {
    ::unlink(beside.c_str());
    throw;
  }
  sync_folder(folder_of(path));
  return digest;
}

FileDigest write_file_atomically(const std::string& path, std::string_view content) {
  return write_file_atomically(path, [&](FileWriter& file) { file.write(content); });
}

void replace_link(const std::string& target, const std::string& link) {
  const std::string beside = temporary_path(link);
  ::unlink(beside.c_str());  // what an earlier process of this number left
  if (::symlink(target.c_str(), beside.c_str()) < 0) throw FileError(link, "make the link to " + target, errno);
  try {
    rename_path(beside, link);
  } catch (const FileError&) {
    ::unlink(beside.c_str());
    throw;
  }
}

bool create_folders(const std::string& path) {
  const auto make = [&] { return ::mkdir(path.c_str(), 0777) == 0 ? 0 : errno; };
  int error_number = make();
  const std::string parent = std::filesystem::path(path).parent_path().string();
  if (error_number == ENOENT && !parent.empty() && parent != path) {
    create_folders(parent);
    error_number = make();
  }
  if (error_number == 0) {
    sync_folder(folder_of(path));
    return true;
  }
  std::error_code unreachable;
  if (error_number == EEXIST && std::filesystem::is_directory(path, unreachable)) return false;
  throw FileError(path, "create the folder", error_number);
}

void sync_folder(const std::string& path) {
  const int number = uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (number < 0) throw FileError(path, "open the folder", errno);
  const Descriptor folder(number);
  // Some network file systems keep names in order themselves and refuse to sync a folder.
  const bool failed = uninterrupted([&] { return ::fsync(folder.number()); }) < 0;
  if (failed && errno != EINVAL && errno != ENOTSUP) throw FileError(path, "sync the folder to disk", errno);
}

void rename_path(const std::string& from, const std::string& to) {
  if (uninterrupted([&] { return ::rename(from.c_str(), to.c_str()); }) < 0) {
    throw FileError(to, "rename " + from + " to it", errno);
  }
}

bool exchange_paths(const std::string& a, const std::string& b) {
  const int result =
      uninterrupted([&] { return ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE); });
  if (result == 0) return true;
  if (errno == EINVAL || errno == ENOSYS || errno == ENOTSUP) return false;
  throw FileError(b, "exchange " + a + " with it", errno);
}

void remove_all(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error) throw FileError(path, "remove", error.value());
}

std::string temporary_path(const std::string& path) {
  const std::filesystem::path whole(path);
  const std::string name = "." + whole.filename().string() + kTemporaryMark + std::to_string(::getpid());
  return (whole.parent_path() / name).string();
}

bool is_temporary_name(std::string_view name, std::string_view of) {
  const std::string start = "." + std::string(of) + kTemporaryMark;
  return name.size() > start.size() && name.starts_with(start) &&
         name.find_first_not_of("0123456789", start.size()) == std::string_view::npos;
}

}  // namespace trainrun
