#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

#include "registry/images/header.h"

namespace trainrun {

/// Decodes a JPEG, PNG, WebP or BMP file that lies in memory to bytes, [height, width, channels] uint8, as Pillow's
/// `Image.open(…).convert("RGB")` and `.convert("L")` do: transparency is dropped, of 16 bits the upper 8 count, of an
/// animation the first picture. The orientation that a camera noted is not looked at, as in torchvision's ImageFolder.
/// Throws DataError, which does not name the file, where it is none of these, is damaged, cut off or too large.
at::Tensor decode_image(std::string_view file, const DecodeOptions& options = {});

}  // namespace trainrun
