#include "registry/kinds/dataset_facts.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/index_select.h>

#include <algorithm>

namespace trainrun {
namespace {

/// Those of the whole that are among these samples, as they follow each other there.
OwnOrder order_of_samples(OwnOrder whole, const at::Tensor& indices) {
  if (!whole) return whole;
  return [whole = std::move(whole), indices](uint64_t seed, int64_t epoch) {
    const at::Tensor order = whole(seed, epoch);
    at::Tensor places = at::empty_like(order);
    places.index_copy_(0, order, at::arange(order.numel(), at::kLong));
    return places.index_select(0, indices).argsort(true, 0, false);
  };
}

std::vector<int64_t> starts_of_samples(const std::vector<int64_t>& whole, const at::Tensor& indices) {
  std::vector<int64_t> own;
  if (whole.empty() || !indices.defined()) return own;
  const int64_t* numbers = indices.const_data_ptr<int64_t>();
  const auto series = [&](int64_t sample) {
    return std::upper_bound(whole.begin(), whole.end(), numbers[sample]) - whole.begin();
  };
  for (int64_t i = 1; i < indices.numel(); ++i) {
    if (series(i) != series(i - 1)) own.push_back(i);
  }
  return own;
}

/// Where these samples are in the order of the whole, so that a hole lies between two of them.
std::vector<DatasetFacts::Hole> holes_of_samples(std::vector<DatasetFacts::Hole> holes, const at::Tensor& indices) {
  if (holes.empty() || !indices.defined()) return {};
  const int64_t* numbers = indices.const_data_ptr<int64_t>();
  for (DatasetFacts::Hole& hole : holes) {
    hole.before = std::lower_bound(numbers, numbers + indices.numel(), hole.before) - numbers;
  }
  return holes;
}

std::vector<std::string> texts_of_samples(const std::vector<std::string>& whole, const at::Tensor& indices) {
  std::vector<std::string> own;
  if (whole.empty()) return own;
  const int64_t* numbers = indices.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < indices.numel(); ++i) own.push_back(whole[static_cast<size_t>(numbers[i])]);
  return own;
}

at::Tensor rows_of_samples(const at::Tensor& whole, const at::Tensor& indices) {
  return whole.defined() ? whole.index_select(0, indices) : whole;
}

}  // namespace

DatasetFacts DatasetFacts::of_samples(const at::Tensor& indices) const {
  DatasetFacts own = *this;
  own.held = [whole = held, indices](const std::string& name) { return rows_of_samples(whole(name), indices); };
  own.place = [whole = place, indices](int64_t index, const std::string& name) {
    return whole(indices[index].item<int64_t>(), name);
  };
  own.stored = [whole = stored, indices](int64_t index) { return whole(indices[index].item<int64_t>()); };
  own.texts = [whole = texts, indices](const std::string& column) { return texts_of_samples(whole(column), indices); };
  own.lengths = [whole = lengths, indices] { return rows_of_samples(whole(), indices); };
  own.own_order = order_of_samples(own_order, indices);
  own.series_starts = [whole = series_starts, indices] { return starts_of_samples(whole(), indices); };
  own.holes = [whole = holes, indices](const std::string& name) { return holes_of_samples(whole(name), indices); };
  own.draws_itself = false;
  own.num_drawn = DatasetFacts().num_drawn;
  return own;
}

}  // namespace trainrun
