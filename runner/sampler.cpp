#include "runner/sampler.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randperm.h>

#include "registry/error.h"

namespace trainrun {

Sampler::Sampler(int64_t num_samples, SamplerOptions options) : num_samples_(num_samples), options_(options) {
  if (options_.world_size < 1 || options_.rank < 0 || options_.rank >= options_.world_size) {
    throw Error("no rank " + std::to_string(options_.rank) + " among " + std::to_string(options_.world_size));
  }
}

int64_t Sampler::size(int64_t rank) const {
  const int64_t world_size = options_.world_size;
  switch (options_.split) {
    case Split::kDropLast:
      return num_samples_ / world_size;
    case Split::kEverySampleOnce:
      return (num_samples_ - rank + world_size - 1) / world_size;
    case Split::kPad:
      break;
  }
  return (num_samples_ + world_size - 1) / world_size;
}

at::Tensor Sampler::indices(int64_t epoch) const {
  at::Tensor order;
  if (options_.shuffle) {
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(options_.seed + static_cast<uint64_t>(epoch));
    order = at::randperm(num_samples_, generator, at::kLong);
  } else {
    order = at::arange(num_samples_, at::kLong);
  }
  if (options_.world_size == 1) return order;
  // Place p of the order, repeated as often as padding takes.
  const at::Tensor places = at::arange(size(), at::kLong) * options_.world_size + options_.rank;
  return order.index_select(0, places.remainder(num_samples_));
}

}  // namespace trainrun
