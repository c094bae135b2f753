#include "tools/starter/bundle_file.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace trainrun::starter {
namespace {

constexpr uint32_t kLocalHeader = 0x04034b50;
constexpr uint32_t kDirectoryEntry = 0x02014b50;
constexpr uint16_t kLongSizes = 1;  // the extra field with sizes of 64 bits

/// An integer, its lowest byte first.
template <class T>
T little(const char* at) {
  T number = 0;
  std::memcpy(&number, at, sizeof number);  // x86-64
  return number;
}

}  // namespace

BundleError system_error(const std::string& path, const std::string& operation) {
  return BundleError(path + ": cannot " + operation + ": " + std::strerror(errno));
}

BundleFile::BundleFile(std::string path) : path_(std::move(path)) {
  file_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (file_ < 0) throw system_error(path_, "open");
  struct stat status{};
  if (::fstat(file_, &status) < 0) throw system_error(path_, "open");
  bytes_ = static_cast<uint64_t>(status.st_size);
  find_members();
}

BundleFile::~BundleFile() {
  if (file_ >= 0) ::close(file_);
}

void BundleFile::read(uint64_t offset, void* to, uint64_t bytes) const {
  auto* at = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t found = ::pread(file_, at, bytes, static_cast<off_t>(offset));
    if (found < 0 && errno == EINTR) continue;
    if (found < 0) throw system_error(path_, "read");
    if (found == 0) {
      throw BundleError(path_ + ": the end of this bundle is missing (it has " + std::to_string(bytes_) +
                        " bytes); copy it again");
    }
    at += found;
    offset += static_cast<uint64_t>(found);
    bytes -= static_cast<uint64_t>(found);
  }
}

void BundleFile::find_members() {
  Elf64_Ehdr program{};
  read(0, &program, sizeof program);
  uint64_t at = program.e_shoff + uint64_t{program.e_shnum} * program.e_shentsize;  // the end of this program
  for (;;) {
    std::array<char, 30> header{};
    read(at, header.data(), header.size());
    const auto signature = little<uint32_t>(header.data());
    if (signature == kDirectoryEntry && !members_.empty()) return;
    if (signature != kLocalHeader) {
      throw BundleError(path_ + ": nothing is bundled with this program; trainrun bundle writes bundles");
    }
    std::string name(little<uint16_t>(&header[26]), '\0');
    std::string extra(little<uint16_t>(&header[28]), '\0');
    read(at + header.size(), name.data(), name.size());
    read(at + header.size() + name.size(), extra.data(), extra.size());
    if (extra.size() < 20 || little<uint16_t>(extra.data()) != kLongSizes) {
      throw BundleError(path_ + ": the bundle is damaged at byte " + std::to_string(at) + "; copy it again");
    }
    const Member member{at + header.size() + name.size() + extra.size(), little<uint64_t>(&extra[4])};
    if (member.bytes > bytes_ || member.offset > bytes_ - member.bytes) read(bytes_, header.data(), 1);  // is cut short
    if (name.ends_with(".zst")) {
      name.resize(name.size() - 4);
      compressed_[name] = true;
    }
    members_[name] = member;
    at = member.offset + member.bytes;
  }
}

const Member& BundleFile::member(const std::string& name) const {
  const auto found = members_.find(name);
  if (found == members_.end()) throw BundleError(path_ + ": the bundle lacks " + name + "; copy it again");
  return found->second;
}

std::string BundleFile::text(const std::string& name) const {
  const Member& found = member(name);
  std::string content(found.bytes, '\0');
  read(found.offset, content.data(), content.size());
  return content;
}

}  // namespace trainrun::starter
