#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "registry/formats/files/descriptor.h"
#include "registry/formats/files/digest.h"
#include "registry/formats/files/hash_thread.h"

namespace trainrun {

/// Writes a new file from its start to its end and hashes what it writes. A file that is not finished is removed again.
class FileWriter {
 public:
  /// Creates the file, or empties it. Throws FileError, as every member does. `hashing`: of files that are written
  /// together, whose threads it saves.
  explicit FileWriter(std::string path, std::shared_ptr<HashThread> hashing = std::make_shared<HashThread>());
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  ~FileWriter();
  void write(const void* data, size_t size);
  void write(std::string_view text) { write(text.data(), text.size()); }
  /// Writes what stays as it is until `finish`, or until the next call of `write`: much of it is hashed by the thread,
  /// which may go on after this has returned.
  void write_lasting(const std::vector<std::string_view>& pieces);
  /// Returns when the content has reached the disk. (That the *name* has, takes `sync_folder`.)
  FileDigest finish();

 private:
  void put(const char* data, size_t size);
  void flush();
  void write_through(const char* data, size_t size);

  std::string path_;
  Descriptor file_;
  std::vector<char> buffer_;  // of small pieces
  Sha256 hash_;
  int64_t bytes_ = 0;
  std::shared_ptr<HashThread> hashing_;
};

/// Reads a file in order. Every failure is a DataError that names the file: a ReadError where the system refused.
class FileReader {
 public:
  enum class Hashing { kOff, kOn };
  /// Throws also for what is no regular file.
  explicit FileReader(std::string path, Hashing hashing = Hashing::kOff);
  uint64_t size() const { return size_; }
  /// Reads exactly `size` bytes; throws where the file ends before.
  void read(void* data, size_t size);
  /// Goes on reading at `offset`. Not for a reader that hashes.
  void seek(uint64_t offset) { position_ = offset; }
  /// Of everything, once it is read with hashing on.
  FileDigest digest();

 private:
  std::string path_;
  Descriptor file_;
  Hashing hashing_;
  uint64_t size_ = 0;
  uint64_t position_ = 0;
  Sha256 hash_;
};

/// Reads the whole file, in pieces. Throws DataError.
FileDigest digest_file(const std::string& path);
/// The file's content; throws DataError also where it is longer than `most_bytes`.
std::string read_file(const std::string& path, uint64_t most_bytes);

/// Replaces `path` in one instant by what `fill` writes: beside it first, synced, then renamed, and the folder synced.
/// Whoever reads meanwhile, or after a crash at any instant, finds the old content or the new. Throws FileError; the
/// old is then there.
FileDigest write_file_atomically(const std::string& path, const std::function<void(FileWriter&)>& fill);
FileDigest write_file_atomically(const std::string& path, std::string_view content);

/// Makes `link` a symbolic link to `target` in one instant, whatever link was there. Lasting once the folder is synced.
void replace_link(const std::string& target, const std::string& link);

/// Makes the folder and those above it, each of them synced into its parent. True if the last one is new.
bool create_folders(const std::string& path);
/// Returns when the names in this folder have reached the disk.
void sync_folder(const std::string& path);
void rename_path(const std::string& from, const std::string& to);
/// Swaps two names in one instant. False where the file system or the kernel cannot.
bool exchange_paths(const std::string& a, const std::string& b);
/// Removes a file, a link or a folder with all in it; nothing is there: nothing to do.
void remove_all(const std::string& path);

/// The marker in the names of what is not finished: "recipe.yaml" is first written to ".recipe.yaml.tmp-1234" (the
/// process).
constexpr const char* kTemporaryMark = ".tmp-";
/// ".NAME.tmp-1234" in the folder of `path`, for this process.
std::string temporary_path(const std::string& path);
/// Is `name` (without folders) one that `temporary_path` makes for a file called `of`, in any process? The mark must be
/// followed by a number: ".keep.tmp-dir" is the user's own.
bool is_temporary_name(std::string_view name, std::string_view of);

}  // namespace trainrun
