#include "runner/init/image_sight.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <unordered_set>

#include "registry/formats/files/file_io.h"
#include "registry/formats/images/decode.h"
#include "registry/language/error.h"

namespace trainrun {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 28;  // of a file
constexpr size_t kMostDecoded = 400;
constexpr size_t kMostOpened = 10'000;

/// Sums of the channels of pictures.
struct ChannelSums {
  double count[3] = {}, sum[3] = {}, squares[3] = {};

  void add(const at::Tensor& picture) {  // [height, width, 3] uint8
    const at::Tensor pixels = picture.to(at::kDouble).div(255);
    for (int64_t c = 0; c < 3; ++c) {
      const at::Tensor channel = pixels.select(2, c);
      count[c] += static_cast<double>(channel.numel());
      sum[c] += channel.sum().item<double>();
      squares[c] += channel.square().sum().item<double>();
    }
  }
};

template <class T>
T median(std::vector<T> numbers) {
  std::nth_element(numbers.begin(), numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2), numbers.end());
  return numbers[numbers.size() / 2];
}

void compare(const std::vector<std::string>& files, ImageSight& sight) {
  std::unordered_set<size_t> seen;
  const size_t step = std::max<size_t>(1, files.size() / kMostOpened);
  for (size_t i = 0; i < files.size() && seen.size() < kMostOpened; i += step) {
    try {
      const std::string bytes = read_file(files[i], kMostBytes);
      ++sight.compared;
      if (!seen.insert(std::hash<std::string>()(bytes)).second) ++sight.copies;
    } catch (const Error&) {  // counted below, where it is decoded
      continue;
    }
  }
}

}  // namespace

ImageSight look_at_images(const std::vector<std::string>& files) {
  ImageSight sight;
  ChannelSums sums;
  std::vector<int64_t> heights, widths;
  const size_t step = std::max<size_t>(1, files.size() / kMostDecoded);
  for (size_t i = 0; i < files.size(); i += step) {
    try {
      const at::Tensor picture = decode_image(read_file(files[i], kMostBytes), 3);
      heights.push_back(picture.size(0));
      widths.push_back(picture.size(1));
      sight.is_gray = sight.is_gray && at::equal(picture.select(2, 0), picture.select(2, 1)) &&
                      at::equal(picture.select(2, 0), picture.select(2, 2));
      sums.add(picture);
    } catch (const Error& error) {
      if (sight.broken++ == 0) sight.first_broken = files[i] + ": " + error.what();
    }
  }
  sight.seen = static_cast<int64_t>(heights.size());
  if (sight.seen == 0) throw DataError("none of the images can be decoded, the first: " + sight.first_broken);
  sight.height = median(heights);
  sight.width = median(widths);
  const auto [low, high] = std::minmax_element(heights.begin(), heights.end());
  const auto [narrow, wide] = std::minmax_element(widths.begin(), widths.end());
  sight.least_side = std::min(*low, *narrow);
  sight.most_side = std::max(*high, *wide);
  sight.is_one_size = *low == *high && *narrow == *wide;
  for (int c = 0; c < (sight.is_gray ? 1 : 3); ++c) {
    const double mean = sums.sum[c] / sums.count[c];
    sight.mean.push_back(mean);
    sight.deviation.push_back(std::sqrt(std::max(sums.squares[c] / sums.count[c] - mean * mean, 1e-6)));
  }
  compare(files, sight);
  return sight;
}

}  // namespace trainrun
