#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace trainrun {

// torchvision.transforms.v2.functional's changes of colours, operation by operation, so that the same pixels come out.
// Images are [N, C, H, W] of 1 or 3 channels: bytes, or floating point in [0, 1]. None writes into what it is given.

/// Gray, in as many channels as before.
at::Tensor grayscale(const at::Tensor& images);
/// Factor 1 leaves an image as it is; 0 makes it black, of one gray, or gray.
at::Tensor adjust_brightness(const at::Tensor& images, double factor);
at::Tensor adjust_contrast(const at::Tensor& images, double factor);
at::Tensor adjust_saturation(const at::Tensor& images, double factor);
/// `shift`: from -0.5 to 0.5, as a share of the whole circle of hues.
at::Tensor adjust_hue(const at::Tensor& images, double shift);
/// Factor 0 blurs, 1 leaves an image as it is, 2 sharpens.
at::Tensor adjust_sharpness(const at::Tensor& images, double factor);
/// Keeps the upper bits of each number.
at::Tensor posterize(const at::Tensor& images, int64_t bits);
/// Inverts what is not below the threshold.
at::Tensor solarize(const at::Tensor& images, double threshold);
/// Stretches each channel of each image to the whole range.
at::Tensor autocontrast(const at::Tensor& images);
/// Makes all values of each channel of each image about equally frequent.
at::Tensor equalize(const at::Tensor& images);
at::Tensor invert(const at::Tensor& images);
/// Filters with a Gaussian of `sigma` in a window of width x height (both odd), the image mirrored at its edges.
at::Tensor gaussian_blur(const at::Tensor& images, int64_t width, int64_t height, double sigma);

/// The greatest value: 255 for bytes, else 1.
double bound_of(const at::Tensor& images);

}  // namespace trainrun
