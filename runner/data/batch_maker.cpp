#include "runner/data/batch_maker.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <string>
#include <utility>

#include "registry/language/error.h"
#include "runner/data/device_batches.h"
#include "runner/data/transform_order.h"

namespace trainrun {

namespace {

constexpr int64_t kOfDataset = -1;  // the place, before all transforms, of what a data set draws

bool any_pairs(const BatchMaker::Transforms& transforms) {
  return std::any_of(transforms.begin(), transforms.end(), [](const auto& transform) { return transform->pairs(); });
}

/// The rows of `batch`, which holds the samples `held`, that are those of `wanted`. `held` is in ascending order.
Batch rows_of_samples(const Batch& batch, const std::vector<int64_t>& held, const std::vector<int64_t>& wanted) {
  std::vector<int64_t> rows;
  rows.reserve(wanted.size());
  for (const int64_t number : wanted) {
    rows.push_back(std::lower_bound(held.begin(), held.end(), number) - held.begin());
  }
  return rows_of(batch, at::tensor(rows, at::kLong));
}

/// The fields whose images lie in memory pixel by pixel (channels last), as decoded pictures do.
std::vector<std::string> fields_by_pixel(const Batch& batch) {
  std::vector<std::string> names;
  for (const Batch::Field& field : batch.fields()) {
    if (field.tensor.suggest_memory_format() == at::MemoryFormat::ChannelsLast) names.push_back(field.name);
  }
  return names;
}

/// Convolutions and poolings of such images are up to twice as fast; not every transform leaves them so.
void lay_by_pixel(Batch& batch, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    at::Tensor& images = batch.at(name);
    if (images.dim() == 4) images = images.contiguous(at::MemoryFormat::ChannelsLast);
  }
}

}  // namespace

BatchMaker::BatchMaker(const Dataset& dataset, const Transforms& transforms, const Sampler& sampler, uint64_t seed,
                       int64_t epoch, bool for_gpu)
    : dataset_(dataset),
      transforms_(transforms),
      application_(application_order(transforms)),
      num_made_(transforms.size() - (for_gpu ? num_pointwise_last(transforms, application_) : 0)),
      seed_(seed),
      epoch_(epoch),
      rank_(sampler.rank()),
      world_size_(sampler.world_size()),
      num_samples_(sampler.num_samples()),
      pairs_(any_pairs(transforms)),
      order_((pairs_ ? sampler.all_indices(epoch) : sampler.indices(epoch)).contiguous()),
      for_gpu_(for_gpu) {}

Batch BatchMaker::make(int64_t first, int64_t size) const {
  const at::NoGradGuard no_grad;
  Numbers numbers(static_cast<size_t>(size));
  for (int64_t i = 0; i < size; ++i) numbers[static_cast<size_t>(i)] = (first + i) * world_size_ + rank_;
  Batch batch = transformed(numbers, num_made_);
  return for_gpu_ ? pinned(batch) : batch;
}

void BatchMaker::finish(Batch& batch) const {
  const at::NoGradGuard no_grad;
  for (size_t i = num_made_; i < application_.size(); ++i)
    transforms_[application_[i]]->apply(batch, SampleDraws({}, {}));
}

Batch BatchMaker::transformed(const Numbers& numbers, size_t count) const {
  size_t begin = count;  // of the transforms after the last one that pairs
  while (begin > 0 && !transforms_[application_[begin - 1]]->pairs()) --begin;
  Batch batch = begin > 0 ? paired(numbers, begin) : gathered(numbers);
  const std::vector<std::string> by_pixel = fields_by_pixel(batch);
  for (size_t i = begin; i < count; ++i) {
    transforms_[application_[i]]->apply(batch, draws(static_cast<int64_t>(application_[i]), numbers));
  }
  lay_by_pixel(batch, by_pixel);
  return batch;
}

Batch BatchMaker::paired(const Numbers& numbers, size_t count) const {
  Numbers before;
  before.reserve(numbers.size());
  for (const int64_t number : numbers) before.push_back(number > 0 ? number - 1 : num_samples_ - 1);
  Numbers both = numbers;
  both.insert(both.end(), before.begin(), before.end());
  std::sort(both.begin(), both.end());
  both.erase(std::unique(both.begin(), both.end()), both.end());
  const Batch all = transformed(both, count - 1);
  Batch batch = rows_of_samples(all, both, numbers);
  const size_t pairing = application_[count - 1];
  transforms_[pairing]->apply_to_pairs(batch, rows_of_samples(all, both, before),
                                       draws(static_cast<int64_t>(pairing), numbers));
  lay_by_pixel(batch, fields_by_pixel(all));
  return batch;
}

Batch BatchMaker::gathered(const Numbers& numbers) const {
  at::Tensor samples = at::empty({static_cast<int64_t>(numbers.size())}, at::kLong);
  auto* to = samples.mutable_data_ptr<int64_t>();
  const auto find = [&](const auto* order) {
    for (const int64_t number : numbers) {
      const int64_t place = pairs_ ? number % num_samples_ : number / world_size_;
      if (place >= order_.numel()) throw Error("the order of the samples ends at " + std::to_string(order_.numel()));
      *to++ = order[place];
    }
  };
  if (order_.scalar_type() == at::kInt) {
    find(order_.const_data_ptr<int32_t>());
  } else {
    find(order_.const_data_ptr<int64_t>());
  }
  return dataset_.get_drawn(samples, draws(kOfDataset, numbers));
}

SampleDraws BatchMaker::draws(int64_t transform, const Numbers& numbers) const {
  return {{seed_, epoch_, transform}, numbers};
}

}  // namespace trainrun
