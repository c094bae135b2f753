#include "registry/formats/files/zip_writer.h"

#include <zlib.h>

namespace trainrun {
namespace {

void append_common(std::string& to, const std::string& name, uint32_t crc, uint16_t extra) {
  append_little(to, uint16_t{45});      // version
  append_little(to, uint16_t{0x0800});  // names are UTF-8
  append_little(to, uint16_t{0});       // stored
  append_little(to, uint16_t{0});       // time
  append_little(to, uint16_t{0x21});    // 1 January 1980
  append_little(to, crc);
  append_little(to, uint32_t{0xffffffff});
  append_little(to, uint32_t{0xffffffff});
  append_little(to, static_cast<uint16_t>(name.size()));
  append_little(to, extra);
}
void append_sizes(std::string& to, uint64_t bytes, std::optional<uint64_t> offset) {
  append_little(to, uint16_t{1});
  append_little(to, static_cast<uint16_t>(offset ? 24 : 16));
  append_little(to, bytes);
  append_little(to, bytes);
  if (offset) append_little(to, *offset);
}

}  // namespace

void ZipWriter::add(const std::string& name, const std::vector<std::string_view>& parts) {
  uint64_t bytes = 0;
  uint32_t crc = 0;
  for (const std::string_view part : parts) {
    crc = static_cast<uint32_t>(crc32_z(crc, reinterpret_cast<const Bytef*>(part.data()), part.size()));
    bytes += part.size();
  }
  begin(name, bytes, crc);
  for (const std::string_view part : parts) write(part);
}

void ZipWriter::begin(const std::string& name, uint64_t bytes, uint32_t crc) {
  std::string local;
  append_little(local, uint32_t{0x04034b50});
  append_common(local, name, crc, 20);
  local += name;
  append_sizes(local, bytes, std::nullopt);
  append_little(directory_, uint32_t{0x02014b50});
  append_little(directory_, uint16_t{45});
  append_common(directory_, name, crc, 28);
  append_little(directory_, uint16_t{0});           // comment
  append_little(directory_, uint16_t{0});           // disk
  append_little(directory_, uint16_t{0});           // internal attributes
  append_little(directory_, uint32_t{0});           // external attributes
  append_little(directory_, uint32_t{0xffffffff});  // offset: in the extra field
  directory_ += name;
  append_sizes(directory_, bytes, position_);
  ++count_;
  write(local);
}

void ZipWriter::write(std::string_view bytes) {
  file_.write(bytes);
  position_ += bytes.size();
}

void ZipWriter::finish() {
  const uint64_t at = position_;
  write(directory_);
  std::string end;
  append_little(end, uint32_t{0x06064b50});
  append_little(end, uint64_t{44});
  append_little(end, uint16_t{45});
  append_little(end, uint16_t{45});
  append_little(end, uint32_t{0});
  append_little(end, uint32_t{0});
  append_little(end, count_);
  append_little(end, count_);
  append_little(end, static_cast<uint64_t>(directory_.size()));
  append_little(end, at);
  append_little(end, uint32_t{0x07064b50});
  append_little(end, uint32_t{0});
  append_little(end, at + directory_.size());
  append_little(end, uint32_t{1});
  append_little(end, uint32_t{0x06054b50});
  append_little(end, uint32_t{0});
  append_little(end, uint16_t{0xffff});
  append_little(end, uint16_t{0xffff});
  append_little(end, uint32_t{0xffffffff});
  append_little(end, uint32_t{0xffffffff});
  append_little(end, uint16_t{0});
  write(end);
}

}  // namespace trainrun
