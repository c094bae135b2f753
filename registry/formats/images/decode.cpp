#include "registry/formats/images/decode.h"

#include <ATen/ops/empty.h>

#include <string>

#include "registry/formats/images/formats.h"
#include "registry/language/error.h"

namespace trainrun {
namespace {

bool has(std::string_view file, size_t offset, std::string_view text) {
  return file.size() >= offset && file.substr(offset).starts_with(text);
}

/// For the format that the first bytes are of.
auto decoder_of(std::string_view file) {
  if (file.empty()) throw DataError("the file is empty");
  if (has(file, 0, "\xff\xd8\xff")) return images::decode_jpeg;
  if (has(file, 0, "\x89PNG\r\n\x1a\n")) return images::decode_png;
  if (has(file, 0, "RIFF") && has(file, 8, "WEBP")) return images::decode_webp;
  if (has(file, 0, "BM")) return images::decode_bmp;
  throw DataError("this is not a JPEG, PNG, WebP or BMP file, whatever its name says");
}

}  // namespace

namespace images {

void require_sensible(const ImageSize& size) {
  const std::string claim = std::to_string(size.width) + "x" + std::to_string(size.height) + " pixels";
  if (size.height <= 0 || size.width <= 0) throw DataError("the image has " + claim);
  if (size.height > kMostPixels / size.width) {
    throw DataError("the image claims " + claim + ", more than the " + std::to_string(kMostPixels) +
                    " that are read; make it smaller");
  }
}

at::Tensor empty_image(const ImageSize& size, int64_t channels) {
  return at::empty({size.height, size.width, channels}, at::kByte);
}

at::Tensor gray_of_rgb(const at::Tensor& rgb) {
  constexpr uint32_t kRed = 19595, kGreen = 38470, kBlue = 7471, kHalf = 0x8000, kBits = 16;  // of 65536
  at::Tensor gray = empty_image({rgb.size(0), rgb.size(1)}, 1);
  const uint8_t* from = rgb.const_data_ptr<uint8_t>();
  uint8_t* to = gray.mutable_data_ptr<uint8_t>();
  for (int64_t i = 0; i < gray.numel(); ++i, from += 3) {
    to[i] = static_cast<uint8_t>((from[0] * kRed + from[1] * kGreen + from[2] * kBlue + kHalf) >> kBits);
  }
  return gray;
}

}  // namespace images

at::Tensor decode_image(std::string_view file, int64_t channels) {
  const at::Tensor image = decoder_of(file)(file, channels);
  return channels == 1 && image.size(2) == 3 ? images::gray_of_rgb(image) : image;
}

at::Tensor decode_mask(std::string_view file) {
  if (file.empty()) throw DataError("the file is empty");
  if (decoder_of(file) != images::decode_png) throw DataError("a mask must be a PNG file");
  return images::decode_png_numbers(file).squeeze(2);
}

}  // namespace trainrun
