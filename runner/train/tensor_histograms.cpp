#include "runner/train/tensor_histograms.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace trainrun {
namespace {

/// Upper limits of the buckets above 0, the least first.
const std::vector<double>& positive_limits() {
  static const std::vector<double> limits = [] {
    constexpr double kLeast = 1e-12;
    constexpr double kGreatest = 1e20;
    constexpr double kGrowth = 1.1;
    std::vector<double> all;
    double limit = kLeast;
    while (limit < kGreatest) {
      all.push_back(limit);
      limit *= kGrowth;
    }
    all.push_back(std::numeric_limits<double>::max());
    return all;
  }();
  return limits;
}

/// Of a number's absolute value: the first bucket whose limit it does not exceed.
size_t bucket_of(double magnitude) {
  const std::vector<double>& limits = positive_limits();
  return static_cast<size_t>(std::lower_bound(limits.begin(), limits.end(), magnitude) - limits.begin());
}

}  // namespace

Histogram histogram_of(const std::string& name, const at::Tensor& values) {
  Histogram histogram;
  histogram.name = name;
  const at::Tensor flat = values.detach().to(at::kCPU, at::kDouble).contiguous().view(-1);
  const double* numbers = flat.const_data_ptr<double>();
  const std::vector<double>& limits = positive_limits();
  std::vector<double> below(limits.size()), above(limits.size());  // of numbers < 0, and of the others
  bool is_first = true;
  for (int64_t i = 0; i < flat.numel(); ++i) {
    const double number = numbers[i];
    if (!std::isfinite(number)) {
      ++histogram.not_finite;
      continue;
    }
    histogram.min = is_first ? number : std::min(histogram.min, number);
    histogram.max = is_first ? number : std::max(histogram.max, number);
    is_first = false;
    ++histogram.count;
    histogram.sum += number;
    histogram.sum_of_squares += number * number;
    ++(number < 0 ? below : above)[bucket_of(std::abs(number))];
  }
  std::vector<double> bounds, counts;
  for (size_t i = limits.size(); i-- > 0;) {
    bounds.push_back(i == 0 ? 0 : -limits[i - 1]);
    counts.push_back(below[i]);
  }
  bounds.insert(bounds.end(), limits.begin(), limits.end());
  counts.insert(counts.end(), above.begin(), above.end());
  const auto is_filled = [](double count) { return count > 0; };
  const auto first = std::find_if(counts.begin(), counts.end(), is_filled) - counts.begin();
  const auto end = counts.rend() - std::find_if(counts.rbegin(), counts.rend(), is_filled);
  if (first < end) {  // the empty buckets at both ends tell nothing
    histogram.limits.assign(bounds.begin() + first, bounds.begin() + end);
    histogram.counts.assign(counts.begin() + first, counts.begin() + end);
  }
  return histogram;
}

std::vector<Histogram> weight_histograms(const NamedTensors& parameters) {
  std::vector<Histogram> histograms;
  for (const auto& [name, tensor] : parameters) histograms.push_back(histogram_of("weights/" + name, tensor));
  return histograms;
}

std::vector<Histogram> gradient_histograms(const NamedTensors& parameters) {
  std::vector<Histogram> histograms;
  for (const auto& [name, tensor] : parameters) {
    if (tensor.grad().defined()) histograms.push_back(histogram_of("gradients/" + name, tensor.grad()));
  }
  return histograms;
}

}  // namespace trainrun
