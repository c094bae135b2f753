#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "registry/image_data/shards/tar_source.h"

namespace trainrun {

/// Reads the files in a tar archive (POSIX ustar and pax, GNU), plain or gzip, one after another. Nothing is unpacked:
/// names are only names, so that an archive cannot write anywhere. Folders, links and devices are skipped.
/// Throws DataError, which names the archive and the file in it, where it is damaged or cut off.
class TarReader {
 public:
  explicit TarReader(const std::string& path) : TarReader(tar_in_data_file(path)) {}
  explicit TarReader(std::unique_ptr<TarSource> source) : source_(std::move(source)) {}

  struct Member {
    std::string name;
    uint64_t size = 0;
    uint64_t offset = 0;  // of its content in the archive
  };
  /// The next file; nothing after the last.
  std::optional<Member> next();
  /// The content of that file, whole. Throws where it has more than `most` bytes.
  std::string read(uint64_t most);

 private:
  struct Header;
  std::optional<Header> next_header();
  std::string current() const { return member_.name.empty() ? "a header" : member_.name; }
  /// A name, or what else is said of the next member, in front of it.
  std::string read_extension(const Header& header);
  [[noreturn]] void fail(const std::string& what) const;

  std::unique_ptr<TarSource> source_;
  Member member_;
  uint64_t unread_ = 0;  // of the member, with what fills its last block
};

}  // namespace trainrun
