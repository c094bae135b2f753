#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>
#include <vector>

namespace trainrun {

/// More pixels than these are refused: what claims to be so large fills the memory, and is hardly meant. Pillow's limit.
inline constexpr int64_t kMostPixels = 178'956'970;

/// Decodes a JPEG, PNG, WebP or BMP file that lies in memory to bytes, [height, width, `channels`] uint8, as Pillow's
/// `Image.open(…).convert("RGB")` (3 channels) and `.convert("L")` (1) do: transparency is dropped, of 16 bits the upper 8 count, of an
/// animation the first picture. The orientation that a camera noted is not looked at, as in torchvision's ImageFolder.
/// Throws DataError, which does not name the file, where it is none of these, is damaged, cut off or too large.
at::Tensor decode_image(std::string_view file, int64_t channels);

/// Decodes a mask, a PNG file whose pixels are numbers: [height, width] uint8; the index in its palette, or the gray, of
/// which one bit is 0 or 1; as numpy.array(Image.open(…)) in Python. Throws DataError, also for a file that has colours.
at::Tensor decode_mask(std::string_view file);

/// The palette of such a file: red, green and blue of each colour; empty where it has none, or is not to be read.
std::vector<uint8_t> palette_of_mask(std::string_view file);

}  // namespace trainrun
