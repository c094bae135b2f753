#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

namespace trainrun::images {

struct ImageSize {
  int64_t height = 0;
  int64_t width = 0;
};
/// Throws DataError for a side of 0 or more than `kMostPixels`. Called as soon as a header is read, before anything is
/// allocated for it.
void require_sensible(const ImageSize& size);
/// [height, width, channels] uint8, not initialised.
at::Tensor empty_image(const ImageSize& size, int64_t channels);
/// From [height, width, 3] to [height, width, 1], by the weights of ITU-R 601 as Pillow rounds them.
at::Tensor gray_of_rgb(const at::Tensor& rgb);

// Each gives 3 channels, or 1 where the file is gray and 1 is asked for; `decode_image` does the rest.
at::Tensor decode_jpeg(std::string_view file, int64_t channels);
at::Tensor decode_png(std::string_view file, int64_t channels);
at::Tensor decode_webp(std::string_view file, int64_t channels);
at::Tensor decode_bmp(std::string_view file, int64_t channels);
/// [height, width, 1]: see decode_mask.
at::Tensor decode_png_numbers(std::string_view file);

}  // namespace trainrun::images
