#include "runner/data/checked_dataset.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/aminmax.h>

#include <algorithm>

namespace trainrun {
namespace {

/// Where `values` are not in the range: a mask of their shape.
at::Tensor outside(const at::Tensor& values, const IndexRange& range) {
  const at::Tensor wrong = values.lt(range.least).logical_or_(values.ge(range.below));
  return range.ignored ? wrong.logical_and_(values.ne(*range.ignored)) : wrong;
}

/// What to do about values from `least` to `most`, of all samples or of some, `are_all`. `renumbering`: what to write so
/// that the data set numbers them, or "".
std::string cure(const IndexUse& use, int64_t least, int64_t most, bool are_all, const std::string& renumbering) {
  if (!use.is_label) {
    const std::string needed = std::to_string(most + 1) + " or more";
    if (least < 0) return "indices count from 0";
    return use.width.empty() ? "its table needs " + needed + " rows" : "write " + use.width + ": " + needed;
  }
  const std::string number = renumbering.empty() ? "subtract 1" : "write " + renumbering;
  if (are_all && least == 1 && most == use.range.below) {
    return "classes must count from 0, and these count from 1; " + number;
  }
  if (least < 0) {
    return "classes count from 0" + std::string(use.range.ignored ? "; those of ignore_index do not count" : "") +
           (renumbering.empty() ? "" : "; to number these write " + renumbering);
  }
  const std::string wanted = std::to_string(most + 1);
  return "classes go up to " + std::to_string(most) +
         (use.width.empty() ? ", so the output must have " + wanted : "; write " + use.width + ": " + wanted) +
         (are_all ? "" : " or more");
}

/// "the output that CrossEntropyLoss (a.yaml:9:7: loss) reads has 10 classes"
std::string bound_text(const IndexUse& use) {
  const std::string where = use.place.to_string();
  const std::string reader = use.type + " (" + (where.empty() ? "" : where + ": ") + use.path + ")";
  const std::string bound = std::to_string(use.range.below);
  return use.is_label ? "the output that " + reader + " reads has " + bound + " classes"
                      : reader + " has num_embeddings " + bound;
}

}  // namespace

IndexRange IndexUse::allowed() const {
  IndexRange both = range;
  if (declared) both.below = std::min(both.below, *declared);
  return both;
}

void check_values(const IndexUse& use, const Dataset& data, const at::Tensor& values, const at::Tensor& samples) {
  if (values.numel() == 0 || at::isFloatingType(values.scalar_type())) return;
  const auto [low, high] = at::aminmax(values);
  const auto least = low.item<int64_t>();
  const auto most = high.item<int64_t>();
  const IndexRange range = use.allowed();
  if (least >= range.least && most < range.below) return;
  const at::Tensor places = outside(values, range).nonzero();
  if (places.size(0) == 0) return;
  const auto row = places[0][0].item<int64_t>();
  at::Tensor value = values;
  for (int64_t dim = 0; dim < places.size(1); ++dim) value = value[places[0][dim].item<int64_t>()];
  const int64_t sample = samples.defined() ? samples[row].item<int64_t>() : row;
  const auto wrong = value.item<int64_t>();
  const std::string fault = data.facts().place(sample, use.field) + ": " + std::to_string(wrong) + " is not from " +
                            std::to_string(range.least) + " to " + std::to_string(range.below - 1) + ": ";
  if (wrong >= range.below && wrong < use.range.below) {  // the model has an output for it
    throw DataError(fault + "the data set says that '" + use.field + "' has " + std::to_string(range.below) +
                    " classes; write num_classes: " + std::to_string(wrong + 1) + ", or more, there");
  }
  throw DataError(fault + bound_text(use) + "; " +
                  cure(use, least, most, !samples.defined(), data.facts().field(use.field).renumbering));
}

Batch CheckedDataset::checked(Batch batch, const at::Tensor& indices) const {
  for (const IndexUse& use : uses_) check_values(use, *this, batch.at(use.field), indices);
  return batch;
}

}  // namespace trainrun
