#include "registry/image_data/shards/tar_reader.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "registry/language/error.h"

namespace trainrun {

namespace {

constexpr uint64_t kBlock = 512;
constexpr uint64_t kMostExtension = uint64_t{1} << 20;  // bytes of a name and the like
constexpr uint64_t kMostMember = uint64_t{1} << 50;     // more are a damaged header

uint64_t padded(uint64_t size) { return (size + kBlock - 1) / kBlock * kBlock; }

}  // namespace

/// A member's first block, as POSIX 1003.1 lays it out.
struct TarReader::Header {
  std::array<char, kBlock> block{};

  /// A text that ends at the first zero byte, or where its place ends.
  std::string text(size_t offset, size_t size) const {
    return {block.data() + offset, strnlen(block.data() + offset, size)};
  }
  /// Octal digits, or GNU's binary number, whose first bit is set; nothing for what is neither.
  std::optional<uint64_t> number(size_t offset, size_t size) const {
    const auto* bytes = reinterpret_cast<const unsigned char*>(block.data()) + offset;
    constexpr unsigned kBinary = 0x80;
    uint64_t value = 0;
    if (bytes[0] & kBinary) {
      for (size_t i = size - sizeof(uint64_t); i < size; ++i) value = value << 8 | bytes[i];
      return value;
    }
    for (const char digit : text(offset, size)) {
      if (digit == ' ') continue;
      if (digit < '0' || digit > '7') return std::nullopt;
      value = value << 3 | static_cast<uint64_t>(digit - '0');
    }
    return value;
  }
  bool is_zero() const {
    return std::all_of(block.begin(), block.end(), [](char byte) { return byte == 0; });
  }
  std::optional<uint64_t> size() const { return number(124, 12); }
  char type() const { return block[156]; }
  std::string name() const {
    const bool is_ustar = text(257, 6).starts_with("ustar") && block[262] == 0;  // GNU has something else at 345
    const std::string prefix = is_ustar ? text(345, 155) : "";
    return prefix.empty() ? text(0, 100) : prefix + "/" + text(0, 100);
  }
  bool has_right_sum() const {
    constexpr size_t kSum = 148, kSumBytes = 8;
    uint64_t sum = 0;
    for (size_t i = 0; i < kBlock; ++i) {
      const bool is_sum = i >= kSum && i < kSum + kSumBytes;
      sum += is_sum ? ' ' : static_cast<unsigned char>(block[i]);
    }
    return number(kSum, kSumBytes) == sum;
  }
};

void TarReader::fail(const std::string& what) const { throw DataError(source_->name() + ": " + what); }

std::optional<TarReader::Header> TarReader::next_header() {
  source_->skip(unread_, current());
  unread_ = 0;
  Header header;
  const size_t got = source_->read(header.block.data(), kBlock);
  if (got == 0 || (got == kBlock && header.is_zero())) return std::nullopt;
  if (got < kBlock) fail("the tar archive is cut off after " + (member_.name.empty() ? "its start" : member_.name));
  if (!header.has_right_sum() || !header.size() || *header.size() > kMostMember) {
    fail(member_.name.empty() ? "this is not a tar archive" : "the tar archive is damaged after " + member_.name);
  }
  return header;
}

std::string TarReader::read_extension(const Header& header) {
  const uint64_t size = *header.size();
  if (size > kMostExtension) fail("the tar archive is damaged: it has a name of " + std::to_string(size) + " bytes");
  std::string text(size, '\0');
  source_->read_exactly(text.data(), size, "a name");
  source_->skip(padded(size) - size, "a name");
  return text;
}

namespace {

/// A pax record, "LENGTH KEY=VALUE\n", of the key; the last one counts.
std::optional<std::string> pax_value(const std::string& records, const std::string& key) {
  std::optional<std::string> value;
  for (size_t begin = 0; begin < records.size();) {
    const size_t space = records.find(' ', begin);
    const uint64_t length = std::strtoull(records.c_str() + begin, nullptr, 10);
    if (space == std::string::npos || length == 0 || length > records.size() - begin) break;
    const std::string record = records.substr(begin, length);
    const size_t start = space - begin + 1;
    if (start < record.size() && record.compare(start, key.size() + 1, key + "=") == 0) {
      value = record.substr(start + key.size() + 1);
      if (!value->empty() && value->back() == '\n') value->pop_back();
    }
    begin += length;
  }
  return value;
}

}  // namespace

std::optional<TarReader::Member> TarReader::next() {
  constexpr char kLongName = 'L', kLongLink = 'K', kPax = 'x', kPaxOfAll = 'g';
  std::optional<std::string> name;
  std::optional<std::string> size_text;
  while (const auto header = next_header()) {
    const char type = header->type();
    if (type == kLongName || type == kLongLink || type == kPax || type == kPaxOfAll) {
      const std::string text = read_extension(*header);
      if (type == kLongName) name = text.c_str();  // ends at its zero byte
      if (type == kPax) {
        if (auto path = pax_value(text, "path")) name = std::move(path);
        size_text = pax_value(text, "size");
      }
      continue;
    }
    member_ = {name.value_or(header->name()), *header->size(), source_->position()};
    if (size_text) member_.size = std::strtoull(size_text->c_str(), nullptr, 10);
    if (member_.size > kMostMember) fail("the tar archive is damaged at " + member_.name);
    name.reset(), size_text.reset();
    const bool is_file = type == '0' || type == '\0' || type == '7';
    unread_ = is_file || type > '6' ? padded(member_.size) : 0;  // links, devices and folders have no content
    if (is_file && !member_.name.ends_with('/')) return member_;
  }
  return std::nullopt;
}

std::string TarReader::read(uint64_t most) {
  if (member_.size > most) {
    fail(member_.name + " has " + std::to_string(member_.size) + " bytes, more than the " + std::to_string(most) +
         " that are read");
  }
  std::string content;
  constexpr uint64_t kPiece = uint64_t{1} << 22;  // a damaged size must not ask for all memory
  while (content.size() < member_.size) {
    const auto wanted = static_cast<size_t>(std::min<uint64_t>(member_.size - content.size(), kPiece));
    const size_t had = content.size();
    content.resize(had + wanted);
    source_->read_exactly(content.data() + had, wanted, member_.name);
  }
  unread_ = padded(member_.size) - member_.size;
  return content;
}

}  // namespace trainrun
