#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

#include "registry/images/header.h"

namespace trainrun::images {

/// Throws DataError for a side of 0 or more than `kMostPixels`.
void require_sensible(const ImageSize& size);
/// [height, width, channels] uint8, not initialised.
at::Tensor empty_image(const ImageSize& size, int64_t channels);
/// From [height, width, 3] to [height, width, 1], by the weights of ITU-R 601 as Pillow rounds them.
at::Tensor gray_of_rgb(const at::Tensor& rgb);

ImageSize size_of_jpeg(std::string_view file);
ImageSize size_of_png(std::string_view file);
ImageSize size_of_webp(std::string_view file);
ImageSize size_of_bmp(std::string_view file);

// Each gives 3 channels, or 1 where the file is gray and 1 is asked for; `decode_image` does the rest.
at::Tensor decode_jpeg(std::string_view file, const DecodeOptions& options);
at::Tensor decode_png(std::string_view file, const DecodeOptions& options);
at::Tensor decode_webp(std::string_view file, const DecodeOptions& options);
at::Tensor decode_bmp(std::string_view file, const DecodeOptions& options);

}  // namespace trainrun::images
