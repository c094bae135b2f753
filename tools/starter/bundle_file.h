#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace trainrun::starter {

/// What a user should read, and no more: the program ends with it.
class BundleError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
/// "path: cannot read: No such file or directory", of the error that errno holds.
BundleError system_error(const std::string& path, const std::string& operation);

/// A member of the archive, as it lies in the file.
struct Member {
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

/// A bundle: this program, and behind it a zip archive, whose members are stored. `NAME.zst` is NAME, compressed.
class BundleFile {
 public:
  /// Opens the file that this process runs. Throws BundleError where that is no whole bundle.
  explicit BundleFile(std::string path);
  BundleFile(const BundleFile&) = delete;
  BundleFile& operator=(const BundleFile&) = delete;
  ~BundleFile();

  const std::string& path() const { return path_; }
  uint64_t bytes() const { return bytes_; }
  /// By name, without ".zst".
  const std::map<std::string, Member>& members() const { return members_; }
  bool is_compressed(const std::string& name) const { return compressed_.contains(name); }
  const Member& member(const std::string& name) const;
  /// The content of a member that is not compressed.
  std::string text(const std::string& name) const;
  /// Reads exactly so many bytes.
  void read(uint64_t offset, void* to, uint64_t bytes) const;

 private:
  void find_members();

  std::string path_;
  int file_ = -1;
  uint64_t bytes_ = 0;
  std::map<std::string, Member> members_;
  std::map<std::string, bool> compressed_;
};

}  // namespace trainrun::starter
