#include "registry/formats/files/zip_file.h"

#include <ATen/ops/empty.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>

#include "registry/formats/files/unpacking.h"
#include "registry/language/error.h"

// Source: PKWARE, APPNOTE.TXT, .ZIP File Format Specification, version 6.3.10.

namespace trainrun {
namespace {

constexpr uint64_t kEndBytes = 22;
constexpr uint64_t kEnd64LocatorBytes = 20;
constexpr uint64_t kEnd64Bytes = 56;
constexpr uint64_t kCentralBytes = 46;
constexpr uint64_t kLocalBytes = 30;
constexpr uint64_t kMostComment = 65535;
constexpr uint64_t kMostDirectoryBytes = uint64_t{256} << 20;
constexpr uint64_t kBestCompression = 1032;  // of deflate: no member unpacks to more than so many times its bytes
constexpr uint32_t kIn64 = 0xFFFFFFFF;       // "see the extra field"
constexpr uint32_t kCentralMagic = 0x02014B50;
constexpr uint32_t kLocalMagic = 0x04034B50;
constexpr std::string_view kEndMagic = "PK\x05\x06";
constexpr uint32_t kEnd64Magic = 0x06064B50;
constexpr uint32_t kEnd64LocatorMagic = 0x07064B50;

[[noreturn]] void damaged(const std::string& what) { throw DataError("is a damaged zip archive: " + what); }

/// Little-endian numbers at places of a piece of the file.
template <class T>
T number_at(std::string_view bytes, uint64_t place) {
  if (bytes.size() < sizeof(T) || place > bytes.size() - sizeof(T)) damaged("its list of members is cut off");
  T value;
  std::memcpy(&value, bytes.data() + place, sizeof(T));
  return value;
}

/// The sizes and the offset that do not fit into 32 bits, from the extra field.
void read_extra(std::string_view extra, ZipFile::Member& member) {
  constexpr uint16_t kZip64 = 1;
  for (uint64_t place = 0; place + 4 <= extra.size();) {
    const auto id = number_at<uint16_t>(extra, place);
    const uint64_t bytes = number_at<uint16_t>(extra, place + 2);
    const std::string_view field = extra.substr(place + 4, bytes);
    place += 4 + bytes;
    if (id != kZip64) continue;
    uint64_t next = 0;
    for (uint64_t* value : {&member.bytes, &member.stored_bytes, &member.header_offset}) {
      if (*value != kIn64) continue;
      *value = number_at<uint64_t>(field, next);
      next += sizeof(uint64_t);
    }
  }
}

/// Where the list of members is, how long, and of how many: from the end of the file.
struct Directory {
  uint64_t count;
  uint64_t bytes;
  uint64_t offset;
};

Directory find_directory(FileReader& file) {
  const uint64_t size = file.size();
  std::string tail(std::min(size, kEndBytes + kMostComment + kEnd64LocatorBytes), '\0');
  file.seek(size - tail.size());
  file.read(tail.data(), tail.size());
  const size_t end = tail.rfind(kEndMagic);
  if (end == std::string::npos || end + kEndBytes > tail.size()) damaged("its end is missing");
  uint64_t count = number_at<uint16_t>(tail, end + 10);
  uint64_t bytes = number_at<uint32_t>(tail, end + 12);
  uint64_t offset = number_at<uint32_t>(tail, end + 16);
  const bool has_64 =
      end >= kEnd64LocatorBytes && number_at<uint32_t>(tail, end - kEnd64LocatorBytes) == kEnd64LocatorMagic;
  if (has_64) {
    const auto place = number_at<uint64_t>(tail, end - kEnd64LocatorBytes + 8);
    if (size < kEnd64Bytes || place > size - kEnd64Bytes) damaged("its end is missing");
    std::string record(kEnd64Bytes, '\0');
    file.seek(place);
    file.read(record.data(), record.size());
    if (number_at<uint32_t>(record, 0) != kEnd64Magic) damaged("its end is missing");
    count = number_at<uint64_t>(record, 32);
    bytes = number_at<uint64_t>(record, 40);
    offset = number_at<uint64_t>(record, 48);
  }
  if (bytes > std::min(size, kMostDirectoryBytes) || offset > size - bytes) {
    damaged("its list of members lies beyond its end");
  }
  return {count, bytes, offset};
}

/// The member whose entry of the list begins at `place`, which moves on to the next. `size`: of the whole file.
ZipFile::Member read_entry(std::string_view view, uint64_t& place, uint64_t size) {
  if (number_at<uint32_t>(view, place) != kCentralMagic) damaged("its list of members makes no sense");
  const auto flags = number_at<uint16_t>(view, place + 8);
  const auto method = number_at<uint16_t>(view, place + 10);
  const uint64_t name_bytes = number_at<uint16_t>(view, place + 28);
  const uint64_t extra_bytes = number_at<uint16_t>(view, place + 30);
  const uint64_t comment_bytes = number_at<uint16_t>(view, place + 32);
  ZipFile::Member member;
  member.crc = number_at<uint32_t>(view, place + 16);
  member.stored_bytes = number_at<uint32_t>(view, place + 20);
  member.bytes = number_at<uint32_t>(view, place + 24);
  member.header_offset = number_at<uint32_t>(view, place + 42);
  place += kCentralBytes;
  if (place + name_bytes + extra_bytes + comment_bytes > view.size()) damaged("its list of members is cut off");
  member.name = view.substr(place, name_bytes);
  read_extra(view.substr(place + name_bytes, extra_bytes), member);
  place += name_bytes + extra_bytes + comment_bytes;

  const std::string what = "member '" + member.name + "'";
  constexpr uint16_t kEncrypted = 1;
  constexpr uint16_t kStored = 0;
  constexpr uint16_t kDeflated = 8;
  if (flags & kEncrypted) throw DataError(what + " is encrypted");
  if (method != kStored && method != kDeflated) {
    throw DataError(what + " is compressed by method " + std::to_string(method) +
                    "; stored and deflated ones are read");
  }
  member.deflated = method == kDeflated;
  const bool too_long =
      member.stored_bytes > size ||
      (member.deflated ? member.bytes / kBestCompression > member.stored_bytes : member.bytes != member.stored_bytes);
  if (too_long) damaged(what + " claims to have " + std::to_string(member.bytes) + " bytes");
  if (member.deflated && is_bomb(member.stored_bytes, member.bytes)) {
    throw DataError(
        what + " unpacks to " + std::to_string(member.bytes) + " bytes, more than " +
        std::to_string(kMostTimesUnpacked) +
        " times what it takes, as if to fill the memory; if it is meant to, save it uncompressed (np.savez)");
  }
  return member;
}

}  // namespace

ZipFile::ZipFile(const std::string& path) : file_(path) { read_directory(); }

void ZipFile::read_directory() {
  const auto [count, bytes, offset] = find_directory(file_);
  std::string directory(bytes, '\0');
  file_.seek(offset);
  file_.read(directory.data(), directory.size());
  std::set<std::string> names;
  uint64_t place = 0;
  for (uint64_t i = 0; i < count; ++i) {
    Member member = read_entry(directory, place, file_.size());
    if (!names.insert(member.name).second) damaged("member '" + member.name + "' occurs twice");
    members_.push_back(std::move(member));
  }
  has_checksums_ = std::any_of(members_.begin(), members_.end(), [](const Member& m) { return m.crc != 0; });
}

const ZipFile::Member* ZipFile::find(const std::string& name) const {
  const auto it = std::find_if(members_.begin(), members_.end(), [&](const Member& m) { return m.name == name; });
  return it == members_.end() ? nullptr : &*it;
}

void ZipFile::go_to(const Member& member) {
  const std::string what = "member '" + member.name + "'";
  if (file_.size() < kLocalBytes || member.header_offset > file_.size() - kLocalBytes) damaged(what + " is cut off");
  std::string header(kLocalBytes, '\0');
  file_.seek(member.header_offset);
  file_.read(header.data(), header.size());
  if (number_at<uint32_t>(header, 0) != kLocalMagic) damaged(what + " is not where it should be");
  const uint64_t name_bytes = number_at<uint16_t>(header, 26);
  const uint64_t offset = member.header_offset + kLocalBytes + name_bytes + number_at<uint16_t>(header, 28);
  if (offset > file_.size() || member.stored_bytes > file_.size() - offset) damaged(what + " is cut off");
  std::string name(name_bytes, '\0');
  if (!name.empty()) file_.read(name.data(), name.size());
  if (name != member.name) damaged(what + " is called '" + name + "' where it lies");
  file_.seek(offset);
}

void ZipFile::inflate(const Member& member, uint8_t* to, uint64_t bytes) {
  constexpr uint64_t kPiece = uint64_t{1} << 16;
  constexpr int kRawDeflate = -15;
  std::string piece(kPiece, '\0');
  z_stream stream{};
  if (inflateInit2(&stream, kRawDeflate) != Z_OK) throw Error("zlib cannot be used: out of memory");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> cleaner(&stream, &inflateEnd);
  uint64_t left = member.stored_bytes;
  uint64_t made = 0;
  while (made < bytes) {
    if (stream.avail_in == 0 && left > 0) {
      const uint64_t some = std::min(left, kPiece);
      file_.read(piece.data(), some);
      left -= some;
      stream.next_in = reinterpret_cast<Bytef*>(piece.data());
      stream.avail_in = static_cast<uInt>(some);
    }
    const auto room = static_cast<uInt>(std::min(bytes - made, uint64_t{1} << 30));
    stream.next_out = to + made;
    stream.avail_out = room;
    const int code = ::inflate(&stream, Z_NO_FLUSH);
    made += room - stream.avail_out;
    const bool stuck = code == Z_BUF_ERROR && stream.avail_in == 0 && left == 0;
    if ((code != Z_OK && code != Z_BUF_ERROR && code != Z_STREAM_END) || stuck ||
        (code == Z_STREAM_END && made < bytes)) {
      damaged("member '" + member.name + "' cannot be decompressed");
    }
  }
}

at::Tensor ZipFile::read(const Member& member) {
  go_to(member);
  at::Tensor bytes = at::empty({static_cast<int64_t>(member.bytes)}, at::kByte);
  uint8_t* to = bytes.mutable_data_ptr<uint8_t>();
  if (member.deflated) {
    inflate(member, to, member.bytes);
  } else if (member.bytes > 0) {
    file_.read(to, member.bytes);
  }
  const auto found = static_cast<uint32_t>(crc32_z(crc32_z(0, nullptr, 0), to, member.bytes));
  if (found != member.crc && has_checksums_)
    damaged("member '" + member.name + "' was changed: its CRC-32 is not the one noted");
  return bytes;
}

std::string ZipFile::read_start(const Member& member, uint64_t most) {
  go_to(member);
  std::string start(std::min(member.bytes, most), '\0');
  if (member.deflated) {
    inflate(member, reinterpret_cast<uint8_t*>(start.data()), start.size());
  } else if (!start.empty()) {
    file_.read(start.data(), start.size());
  }
  return start;
}

}  // namespace trainrun
