#include "runner/data/sampler.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randperm.h>

#include <limits>

#include "registry/language/error.h"

namespace trainrun {

namespace {

/// Of each class, in the order of their numbers, sample j of a random order of its n lies at a random place of
/// [j/n, (j+1)/n): so every stretch of the order has of each class its share, but for two samples at most.
at::Tensor stratified_order(const at::Tensor& strata, at::Generator& generator) {
  std::vector<at::Tensor> rows;
  std::vector<at::Tensor> places;
  const int64_t num_classes = strata.numel() == 0 ? 0 : strata.max().item<int64_t>() + 1;
  for (int64_t label = 0; label < num_classes; ++label) {
    const at::Tensor own = strata.eq(label).nonzero().flatten();
    const int64_t n = own.numel();
    if (n == 0) continue;
    rows.push_back(own.index_select(0, at::randperm(n, generator, at::kLong)));
    places.push_back((at::arange(n, at::kDouble) + at::rand({n}, generator, at::kDouble)) / n);
  }
  return at::cat(rows).index_select(0, at::cat(places).argsort(true, 0, false));
}

}  // namespace

Sampler::Sampler(int64_t num_samples, SamplerOptions options)
    : num_samples_(options.drawing.num_samples > 0 ? options.drawing.num_samples : num_samples),
      options_(std::move(options)) {
  const Drawing& drawing = options_.drawing;
  if (drawing.weights.defined() && !drawing.replacement) {
    const auto possible = drawing.weights.gt(0).sum().item<int64_t>();
    if (num_samples_ > possible) {
      throw DataError("without replacement " + std::to_string(num_samples_) + " samples cannot be drawn, only " +
                      std::to_string(possible) + " have a weight above 0");
    }
  }
  if (options_.world_size < 1 || options_.rank < 0 || options_.rank >= options_.world_size) {
    throw Error("no rank " + std::to_string(options_.rank) + " among " + std::to_string(options_.world_size));
  }
}

int64_t Sampler::size(int64_t rank) const {
  const int64_t world_size = options_.world_size;
  if (options_.split == Split::kEverySampleOnce) return (num_samples_ - rank + world_size - 1) / world_size;
  return (num_samples_ + world_size - 1) / world_size;
}

at::Tensor Sampler::order(int64_t epoch) const {
  const Drawing& drawing = options_.drawing;
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(options_.seed + static_cast<uint64_t>(epoch));
  if (drawing.weights.defined()) {
    return at::multinomial(drawing.weights, num_samples_, drawing.replacement, generator);
  }
  if (drawing.strata.defined()) return stratified_order(drawing.strata, generator);
  if (drawing.order) return drawing.order(options_.seed, epoch);
  return at::randperm(num_samples_, generator, order_dtype());
}

/// Of a rank among several, which keeps its own part alone, in half the memory: the numbers are the same.
at::ScalarType Sampler::order_dtype() const {
  const bool is_small = options_.world_size > 1 && num_samples_ <= std::numeric_limits<int32_t>::max();
  return is_small ? at::kInt : at::kLong;
}

bool Sampler::is_drawn() const {
  return options_.shuffle || options_.drawing.weights.defined() || options_.drawing.strata.defined();
}

at::Tensor Sampler::all_indices(int64_t epoch) const {
  return is_drawn() ? order(epoch) : at::arange(num_samples_, order_dtype());
}

at::Tensor Sampler::indices(int64_t epoch) const {
  if (options_.world_size == 1) return all_indices(epoch);
  // Place p of the order, repeated as often as padding takes.
  at::Tensor places = at::arange(size(), at::kLong);
  places.mul_(options_.world_size).add_(options_.rank).remainder_(num_samples_);
  return is_drawn() ? order(epoch).index_select(0, places).to(at::kLong) : places;
}

int64_t Sampler::order_bytes() const {
  constexpr int64_t kIndex = sizeof(int64_t);
  if (options_.world_size == 1) return num_samples_ * kIndex;
  const int64_t number = order_dtype() == at::kInt ? sizeof(int32_t) : kIndex;
  const int64_t own = size() * kIndex;
  return options_.shuffle ? (num_samples_ + size()) * number + 2 * own : own;
}

}  // namespace trainrun
