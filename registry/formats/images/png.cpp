#include <spng.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "registry/formats/images/formats.h"
#include "registry/language/error.h"

namespace trainrun::images {
namespace {

using Context = std::unique_ptr<spng_ctx, void (*)(spng_ctx*)>;

constexpr size_t kMostOfAChunk = 64 << 20;  // bytes of text and the like that a file may make us keep

void require(int code) {
  if (code == 0) return;
  const bool ends = code == SPNG_IO_EOF || code == SPNG_EIDAT_TOO_SHORT;
  throw DataError(ends ? "the PNG is cut off" : std::string("the PNG is damaged: ") + spng_strerror(code));
}

Context open_png(std::string_view file) {
  Context context(spng_ctx_new(0), spng_ctx_free);
  if (!context) throw std::bad_alloc();
  require(spng_set_chunk_limits(context.get(), kMostOfAChunk, kMostOfAChunk));
  require(spng_set_png_buffer(context.get(), file.data(), file.size()));
  return context;
}

spng_ihdr header_of(const Context& context) {
  spng_ihdr header{};
  require(spng_get_ihdr(context.get(), &header));
  require_sensible({header.height, header.width});
  return header;
}

std::vector<uint8_t> decoded(const Context& context, int format) {
  size_t size = 0;
  require(spng_decoded_image_size(context.get(), format, &size));
  std::vector<uint8_t> bytes(size);
  require(spng_decode_image(context.get(), bytes.data(), size, format, 0));
  return bytes;
}

int64_t channels_of(uint8_t color_type) {
  switch (color_type) {
    case SPNG_COLOR_TYPE_TRUECOLOR:
      return 3;
    case SPNG_COLOR_TYPE_TRUECOLOR_ALPHA:
      return 4;
    case SPNG_COLOR_TYPE_GRAYSCALE_ALPHA:
      return 2;
    default:
      return 1;
  }
}

/// The upper bytes of samples of 16 bits, most significant byte first, without transparency.
at::Tensor upper_bytes(const Context& context, const spng_ihdr& header, int64_t channels) {
  constexpr int kBytes = 2;
  const std::vector<uint8_t> samples = decoded(context, SPNG_FMT_RAW);
  const int64_t each = channels_of(header.color_type);
  at::Tensor image = empty_image({header.height, header.width}, channels);
  uint8_t* to = image.mutable_data_ptr<uint8_t>();
  const uint8_t* from = samples.data();
  for (int64_t i = 0; i < int64_t{header.height} * header.width; ++i, from += each * kBytes) {
    for (int64_t c = 0; c < channels; ++c) *to++ = from[(each < 3 ? 0 : c) * kBytes];
  }
  return image;
}

/// Samples of fewer than 8 bits, of which several lie in a byte, the first in its upper bits; a row begins with a byte.
at::Tensor unpacked(const std::vector<uint8_t>& bytes, const spng_ihdr& header) {
  constexpr uint32_t kByteBits = 8;
  const uint32_t depth = header.bit_depth;
  const size_t row_bytes = (size_t{header.width} * depth + kByteBits - 1) / kByteBits;
  if (bytes.size() != row_bytes * header.height) throw DataError("the PNG is damaged: its rows do not fit its header");
  at::Tensor image = empty_image({header.height, header.width}, 1);
  uint8_t* to = image.mutable_data_ptr<uint8_t>();
  for (size_t y = 0; y < header.height; ++y) {
    for (size_t x = 0; x < header.width; ++x) {
      const size_t bit = x * depth;
      const uint32_t shift = kByteBits - depth - bit % kByteBits;
      *to++ = static_cast<uint8_t>(bytes[y * row_bytes + bit / kByteBits] >> shift & ((1U << depth) - 1));
    }
  }
  return image;
}

}  // namespace

at::Tensor decode_png_numbers(std::string_view file) {
  constexpr int kByteBits = 8;
  const Context context = open_png(file);
  const spng_ihdr header = header_of(context);
  const bool is_palette = header.color_type == SPNG_COLOR_TYPE_INDEXED;
  if ((!is_palette && header.color_type != SPNG_COLOR_TYPE_GRAYSCALE) || header.bit_depth > kByteBits) {
    throw DataError(
        "the PNG has colours, transparency or 16 bits; a mask is gray, or has a palette, and at most 8 bits");
  }
  if (is_palette || header.bit_depth == 1) return unpacked(decoded(context, SPNG_FMT_RAW), header);
  const std::vector<uint8_t> bytes = decoded(context, SPNG_FMT_G8);
  at::Tensor image = empty_image({header.height, header.width}, 1);
  if (bytes.size() != image.nbytes()) throw DataError("the PNG is damaged: its rows do not fit its header");
  std::copy(bytes.begin(), bytes.end(), image.mutable_data_ptr<uint8_t>());
  return image;
}

at::Tensor decode_png(std::string_view file, int64_t channels) {
  constexpr int kWide = 16;
  const Context context = open_png(file);
  const spng_ihdr header = header_of(context);
  const bool is_gray =
      header.color_type == SPNG_COLOR_TYPE_GRAYSCALE || header.color_type == SPNG_COLOR_TYPE_GRAYSCALE_ALPHA;
  const int64_t decoded_channels = is_gray && channels == 1 ? 1 : 3;
  if (header.bit_depth == kWide) return upper_bytes(context, header, decoded_channels);
  at::Tensor image = empty_image({header.height, header.width}, 3);
  size_t size = 0;
  require(spng_decoded_image_size(context.get(), SPNG_FMT_RGB8, &size));
  if (size != image.nbytes()) throw DataError("the PNG is damaged: its rows do not fit its header");
  require(spng_decode_image(context.get(), image.mutable_data_ptr<uint8_t>(), size, SPNG_FMT_RGB8, 0));
  return decoded_channels == 1 ? image.slice(2, 0, 1).contiguous() : image;
}

}  // namespace trainrun::images

namespace trainrun {

std::vector<uint8_t> palette_of_mask(std::string_view file) {
  const images::Context context(spng_ctx_new(0), spng_ctx_free);
  if (!context) throw std::bad_alloc();
  std::vector<uint8_t> palette;
  spng_plte colors{};
  if (spng_set_chunk_limits(context.get(), images::kMostOfAChunk, images::kMostOfAChunk) != 0 ||
      spng_set_png_buffer(context.get(), file.data(), file.size()) != 0 || spng_get_plte(context.get(), &colors) != 0) {
    return palette;
  }
  for (size_t i = 0; i < colors.n_entries; ++i) {
    palette.insert(palette.end(), {colors.entries[i].red, colors.entries[i].green, colors.entries[i].blue});
  }
  return palette;
}

}  // namespace trainrun
