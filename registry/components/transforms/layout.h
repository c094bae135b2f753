#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace trainrun {

/// How images [N, C, H, W] that lie in order in memory follow each other there, for loops over their bytes: each image
/// is `planes` pictures of H rows of W pixels of `pixel` numbers; one picture of whole pixels, or one for each channel.
struct ImageLayout {
  int64_t planes = 1;
  int64_t pixel = 1;
};

/// The images in order in memory, copied if they are not: pixel by pixel (channels last) if they lie so already.
inline at::Tensor in_order(const at::Tensor& images) { return images.contiguous(images.suggest_memory_format()); }

/// Of images that `in_order` returned.
inline ImageLayout layout_of(const at::Tensor& images) {
  const bool channels_last = images.suggest_memory_format() == at::MemoryFormat::ChannelsLast;
  return channels_last ? ImageLayout{1, images.size(1)} : ImageLayout{images.size(1), 1};
}

}  // namespace trainrun
