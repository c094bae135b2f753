#include "runner/data/length_order.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randperm.h>

#include <algorithm>

namespace trainrun {

at::Tensor length_grouped_order(const at::Tensor& lengths, int64_t unit, uint64_t seed, int64_t epoch) {
  constexpr int64_t kUnits = 50;
  constexpr int64_t kFewestStretches = 4;
  const int64_t count = lengths.numel();
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed + static_cast<uint64_t>(epoch));
  const at::Tensor order = at::randperm(count, generator, at::kLong);
  const int64_t* const length = lengths.const_data_ptr<int64_t>();
  int64_t* const first = order.mutable_data_ptr<int64_t>();
  const int64_t stretch = unit * std::clamp<int64_t>(count / (unit * kFewestStretches), 1, kUnits);
  int64_t* longest = first;
  for (int64_t begin = 0; begin < count; begin += stretch) {
    int64_t* const from = first + begin;
    std::stable_sort(from, first + std::min(begin + stretch, count),
                     [&](int64_t a, int64_t b) { return length[a] > length[b]; });
    if (length[*from] > length[*longest]) longest = from;
  }
  if (count > 0) std::swap(*first, *longest);
  return order;
}

double padding_share(const at::Tensor& lengths, const at::Tensor& order, int64_t batch_size, int64_t world_size) {
  const int64_t* const length = lengths.const_data_ptr<int64_t>();
  const int64_t* const sample = order.const_data_ptr<int64_t>();
  double tokens = 0;
  double places = 0;
  for (int64_t rank = 0; rank < world_size; ++rank) {
    for (int64_t begin = rank; begin < order.numel(); begin += batch_size * world_size) {
      int64_t longest = 0;
      int64_t num_rows = 0;
      for (int64_t i = begin; i < std::min(begin + batch_size * world_size, order.numel()); i += world_size) {
        longest = std::max(longest, length[sample[i]]);
        tokens += static_cast<double>(length[sample[i]]);
        ++num_rows;
      }
      places += static_cast<double>(longest * num_rows);
    }
  }
  return places > 0 ? 1 - tokens / places : 0;
}

}  // namespace trainrun
