#pragma once

#include <cstdint>
#include <string_view>

namespace trainrun {

enum class ImageFormat { kJpeg, kPng, kWebp, kBmp };

/// More pixels than these are refused: what claims to be so large fills the memory, and is hardly meant. Pillow's limit.
inline constexpr int64_t kMostPixels = 178'956'970;

/// Which format a file is in, by its first bytes. Throws DataError where it is none that can be read.
ImageFormat format_of(std::string_view file);

struct ImageSize {
  int64_t height = 0;
  int64_t width = 0;
};
/// The size that an image's header claims, without decoding it. Throws DataError where the header is damaged, or claims
/// more than `kMostPixels`.
ImageSize size_of_image(std::string_view file);

struct DecodeOptions {
  /// 3: red, green, blue; 1: gray.
  int64_t channels = 3;
  /// A JPEG may be decoded to 1/2, 1/4 or 1/8 of its size, which is quicker, as long as neither side gets shorter than
  /// this; 0: only to its whole size.
  int64_t enough = 0;
};

}  // namespace trainrun
