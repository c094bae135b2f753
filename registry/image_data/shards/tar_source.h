#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace trainrun {

/// What a TarReader reads, from its start on.
class TarSource {
 public:
  virtual ~TarSource() = default;
  /// For messages.
  const std::string& name() const { return name_; }
  /// Bytes read or skipped so far.
  uint64_t position() const { return position_; }
  /// Reads up to `size` bytes and returns how many: fewer only at the end.
  size_t read(void* data, size_t size);
  /// Reads exactly `size` bytes of `what`; throws DataError where it ends before.
  void read_exactly(void* data, size_t size, const std::string& what);
  /// Passes over `size` bytes of `what`; throws DataError where it ends before.
  void skip(uint64_t size, const std::string& what);

 protected:
  explicit TarSource(std::string name) : name_(std::move(name)) {}

 private:
  virtual size_t read_some(void* data, size_t size) = 0;
  /// How many bytes were skipped without being read, `size` or fewer.
  virtual uint64_t leap(uint64_t size);

  std::string name_;
  uint64_t position_ = 0;
};

/// A file, plain or gzip, read whole.
std::unique_ptr<TarSource> tar_in_data_file(const std::string& path);
/// A plain file, of which only what is asked for is read. Throws DataError where it is compressed.
std::unique_ptr<TarSource> tar_in_plain_file(const std::string& path);
/// Bytes in memory, which outlive it.
std::unique_ptr<TarSource> tar_in_memory(const std::string& name, std::string_view bytes);

}  // namespace trainrun
