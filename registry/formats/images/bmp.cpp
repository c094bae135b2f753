#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "registry/formats/images/formats.h"
#include "registry/language/error.h"

// Windows bitmaps, which no library of Debian's reads: rows of pixels behind a header, the lowest row first.

namespace trainrun::images {
namespace {

constexpr int kFull = 255;

/// A file's numbers, least significant byte first. Throws DataError beyond its end.
class Numbers {
 public:
  explicit Numbers(std::string_view file) : file_(file) {}
  uint8_t byte(size_t offset) const {
    if (offset >= file_.size()) throw DataError("the BMP is cut off");
    return static_cast<uint8_t>(file_[offset]);
  }
  uint32_t number(size_t offset, size_t bytes) const {
    uint32_t value = 0;
    for (size_t i = 0; i < bytes; ++i) value |= uint32_t{byte(offset + i)} << (8 * i);
    return value;
  }
  size_t size() const { return file_.size(); }

 private:
  std::string_view file_;
};

struct BmpHeader {
  ImageSize size;
  bool lowest_first = true;
  uint32_t pixels_at = 0;  // offset in the file
  uint32_t bits = 0;       // of a pixel
  uint32_t palette_at = 0;
  uint32_t palette_entry = 4;  // bytes
  uint32_t palette_size = 0;
  std::array<uint32_t, 3> masks = {};  // of red, green, blue in a pixel of 16 or 32 bits
};

constexpr uint32_t kFileHeader = 14, kCoreHeader = 12, kInfoHeader = 40;
constexpr uint32_t kPlain = 0, kBitFields = 3, kBitFieldsWithAlpha = 6;  // kinds of compression

void read_core(const Numbers& file, BmpHeader& header) {
  header.size = {file.number(kFileHeader + 6, 2), file.number(kFileHeader + 4, 2)};
  header.bits = file.number(kFileHeader + 10, 2);
  header.palette_entry = 3;
}

void read_masks(const Numbers& file, uint32_t compression, BmpHeader& header) {
  if (compression == kPlain) {
    header.masks = header.bits == 16 ? std::array<uint32_t, 3>{0x7c00, 0x03e0, 0x001f}
                                     : std::array<uint32_t, 3>{0xff0000, 0x00ff00, 0x0000ff};
    return;
  }
  for (size_t i = 0; i < header.masks.size(); ++i) {
    header.masks[i] = file.number(kFileHeader + kInfoHeader + 4 * i, 4);
    if (header.masks[i] == 0) throw DataError("the BMP is damaged: a colour has no bits");
  }
}

void read_info(const Numbers& file, uint32_t header_size, BmpHeader& header) {
  const auto height = static_cast<int32_t>(file.number(kFileHeader + 8, 4));
  header.lowest_first = height > 0;
  header.size = {std::abs(int64_t{height}), static_cast<int32_t>(file.number(kFileHeader + 4, 4))};
  header.bits = file.number(kFileHeader + 14, 2);
  const uint32_t compression = file.number(kFileHeader + 16, 4);
  if (compression != kPlain && compression != kBitFields && compression != kBitFieldsWithAlpha) {
    throw DataError("the BMP is compressed, which is not read; save it as PNG");
  }
  header.palette_size = file.number(kFileHeader + 32, 4);
  read_masks(file, compression, header);
  if (header_size == kInfoHeader && compression != kPlain) header.palette_at += 12;  // the masks lie in between
}

BmpHeader read_bmp_header(const Numbers& file) {
  BmpHeader header;
  header.pixels_at = file.number(10, 4);
  const uint32_t header_size = file.number(kFileHeader, 4);
  header.palette_at = kFileHeader + header_size;
  if (header_size == kCoreHeader) {
    read_core(file, header);
  } else if (header_size >= kInfoHeader && header_size <= 124) {
    read_info(file, header_size, header);
  } else {
    throw DataError("the BMP is damaged: its header claims " + std::to_string(header_size) + " bytes");
  }
  for (const uint32_t known : {1, 4, 8, 16, 24, 32}) {
    if (header.bits == known) return header;
  }
  throw DataError("the BMP has " + std::to_string(header.bits) + " bits a pixel; 1, 4, 8, 16, 24 and 32 are read");
}

using Color = std::array<uint8_t, 3>;

std::vector<Color> read_palette(const Numbers& file, const BmpHeader& header) {
  const uint32_t all = 1U << header.bits;
  const uint32_t count = header.palette_size == 0 || header.palette_size > all ? all : header.palette_size;
  std::vector<Color> palette(all, Color{});
  for (uint32_t i = 0; i < count; ++i) {
    for (size_t c = 0; c < 3; ++c) palette[i][c] = file.byte(header.palette_at + i * header.palette_entry + 2 - c);
  }
  return palette;
}

/// The bits of `pixel` under `mask`, stretched to 0 … 255.
uint8_t stretched(uint32_t pixel, uint32_t mask) {
  const int shift = std::countr_zero(mask);
  const uint64_t most = mask >> shift;
  return static_cast<uint8_t>(uint64_t{(pixel & mask) >> shift} * kFull / most);
}

Color pixel_of(const Numbers& file, size_t row_at, int64_t x, const BmpHeader& header,
               const std::vector<Color>& palette) {
  const auto column = static_cast<size_t>(x);
  if (header.bits <= 8) {
    const size_t bit = column * header.bits;
    const uint32_t from_top = 8 - header.bits - bit % 8;
    return palette[(file.byte(row_at + bit / 8) >> from_top) & ((1U << header.bits) - 1)];
  }
  const size_t bytes = header.bits / 8;
  const size_t at = row_at + column * bytes;
  if (header.bits == 24) return {file.byte(at + 2), file.byte(at + 1), file.byte(at)};
  const uint32_t pixel = file.number(at, bytes);
  return {stretched(pixel, header.masks[0]), stretched(pixel, header.masks[1]), stretched(pixel, header.masks[2])};
}

}  // namespace

at::Tensor decode_bmp(std::string_view file, int64_t) {
  const Numbers numbers(file);
  const BmpHeader header = read_bmp_header(numbers);
  require_sensible(header.size);
  const auto palette = header.bits <= 8 ? read_palette(numbers, header) : std::vector<Color>();
  const auto width = static_cast<uint64_t>(header.size.width);
  const uint64_t row_bytes = (width * header.bits + 31) / 32 * 4;
  if (header.pixels_at > numbers.size() ||
      row_bytes * static_cast<uint64_t>(header.size.height) > numbers.size() - header.pixels_at) {
    throw DataError("the BMP is cut off");
  }
  at::Tensor image = empty_image(header.size, 3);
  uint8_t* to = image.mutable_data_ptr<uint8_t>();
  for (int64_t y = 0; y < header.size.height; ++y) {
    const int64_t row = header.lowest_first ? header.size.height - 1 - y : y;
    const size_t row_at = header.pixels_at + static_cast<uint64_t>(row) * row_bytes;
    for (int64_t x = 0; x < header.size.width; ++x, to += 3) {
      const Color color = pixel_of(numbers, row_at, x, header, palette);
      std::memcpy(to, color.data(), color.size());
    }
  }
  return image;
}

}  // namespace trainrun::images
