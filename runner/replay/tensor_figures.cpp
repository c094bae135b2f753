#include "runner/replay/tensor_figures.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/view_as_real.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "registry/language/text_forms.h"

namespace trainrun {
namespace {

constexpr int kShown = 6;  // figures

std::string shown(double number) { return std::isnan(number) ? "nan" : in_figures(number, kShown); }

/// On the CPU, as real numbers, one after the other.
at::Tensor plain(const at::Tensor& tensor) {
  at::Tensor real = tensor.detach().to(at::kCPU);
  if (real.is_complex()) real = at::view_as_real(real.resolve_conj());
  return real.contiguous();
}

std::string sizes_and_dtype(const at::Tensor& tensor) {
  if (!tensor.defined()) return "none";
  std::string text = "[";
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) text += (dim > 0 ? ", " : "") + std::to_string(tensor.size(dim));
  return text + "] " + at::toString(tensor.scalar_type());
}

std::vector<int64_t> place_in(at::IntArrayRef sizes, int64_t number) {
  std::vector<int64_t> place(sizes.size());
  for (size_t dim = sizes.size(); dim-- > 0;) {
    place[dim] = number % sizes[dim];
    number /= sizes[dim];
  }
  return place;
}

uint64_t mixed(uint64_t hash, uint64_t word) {
  constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15U;
  hash = (hash ^ word) * kMultiplier;
  return hash ^ (hash >> 32U);
}

}  // namespace

double TensorFigures::abs_max() const { return std::max(std::abs(least), std::abs(greatest)); }

std::string TensorFigures::range_text() const {
  if (elements == not_finite) return "nowhere finite";
  return "between " + shown(least) + " and " + shown(greatest);
}

TensorFigures figures_of(const at::Tensor& tensor) {
  const at::NoGradGuard no_gradients;
  TensorFigures figures;
  if (!tensor.defined() || tensor.numel() == 0) return figures;
  at::Tensor numbers = plain(tensor).to(at::kDouble).flatten();
  figures.elements = numbers.numel();
  const at::Tensor finite = numbers.isfinite();
  figures.not_finite = figures.elements - finite.sum().item<int64_t>();
  if (figures.not_finite > 0) numbers = numbers.masked_select(finite);
  if (numbers.numel() == 0) return figures;
  figures.norm = at::linalg_vector_norm(numbers).item<double>();
  figures.mean = numbers.mean().item<double>();
  figures.least = numbers.min().item<double>();
  figures.greatest = numbers.max().item<double>();
  return figures;
}

std::string TensorDifference::to_string() const {
  if (!shapes.empty()) return shapes;
  std::string place = "[";
  for (size_t i = 0; i < at.size(); ++i) place += (i > 0 ? ", " : "") + std::to_string(at[i]);
  return std::to_string(differing) + " of " + counted(elements, "number", "numbers") + ", by " +
         (std::isnan(greatest) ? "nan" : in_figures(greatest, 3)) + (at.empty() ? "" : " at " + place + "]") + ": " +
         shown(a) + " and " + shown(b);
}

std::optional<TensorDifference> difference_of(const at::Tensor& a, const at::Tensor& b) {
  const at::NoGradGuard no_gradients;
  if (!a.defined() && !b.defined()) return std::nullopt;
  TensorDifference difference;
  if (!a.defined() || !b.defined() || a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) {
    difference.shapes = sizes_and_dtype(a) + " and " + sizes_and_dtype(b);
    return difference;
  }
  const at::Tensor of_a = plain(a), of_b = plain(b);
  if (std::memcmp(of_a.const_data_ptr(), of_b.const_data_ptr(), of_a.nbytes()) == 0) return std::nullopt;
  const at::Tensor x = of_a.to(at::kDouble).flatten(), y = of_b.to(at::kDouble).flatten();
  const at::Tensor differs = x.ne(y).logical_and(x.isnan().logical_and(y.isnan()).logical_not());
  difference.elements = x.numel();
  difference.differing = differs.sum().item<int64_t>();
  if (difference.differing == 0) return std::nullopt;  // 0 and -0, or one NaN and another
  const at::Tensor size = (x - y).abs().masked_fill(differs.logical_not(), -1);
  const auto number = size.argmax().item<int64_t>();  // of NaN, the first
  difference.greatest = size[number].item<double>();
  difference.at = place_in(of_a.sizes(), number);
  difference.a = x[number].item<double>();
  difference.b = y[number].item<double>();
  return difference;
}

uint64_t hashed(uint64_t hash, const at::Tensor& tensor) {
  if (!tensor.defined()) return mixed(hash, 1);
  const at::Tensor numbers = plain(tensor);
  hash = mixed(hash, static_cast<uint64_t>(numbers.scalar_type()) + 2);
  for (const int64_t size : numbers.sizes()) hash = mixed(hash, static_cast<uint64_t>(size));
  const auto* bytes = static_cast<const char*>(numbers.const_data_ptr());
  const size_t count = numbers.nbytes();
  for (size_t begin = 0; begin < count; begin += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + begin, std::min(sizeof(uint64_t), count - begin));
    hash = mixed(hash, word);
  }
  return hash;
}

}  // namespace trainrun
