#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainrun {

/// What a tensor holds, in a few numbers: over those of its elements that are finite.
struct TensorFigures {
  int64_t elements = 0;
  int64_t not_finite = 0;  // how many of them are NaN or an infinity
  double norm = 0;
  double mean = 0;
  double least = 0;
  double greatest = 0;

  double abs_max() const;
  /// "between -3.2 and 4.1e+07", "nowhere finite"
  std::string range_text() const;
};

/// Reads `tensor`, which may lie on a GPU.
TensorFigures figures_of(const at::Tensor& tensor);

/// How two tensors differ, bit for bit; two NaN do not.
struct TensorDifference {
  std::string shapes;         // "[3, 7] float32 and [3, 8] float32" where these differ, and nothing else is known then
  int64_t elements = 0;       // of each
  int64_t differing = 0;      // of those
  double greatest = 0;        // difference; NaN where one of the two is not a number there
  std::vector<int64_t> at{};  // where that is
  double a = 0, b = 0;        // what they hold there

  /// "1 of 320 numbers, by 0.001 at [3, 7]: 0.12 and 0.121"
  std::string to_string() const;
};

/// Nothing where they are equal; of undefined ones, one alone differs.
std::optional<TensorDifference> difference_of(const at::Tensor& a, const at::Tensor& b);

/// Mixes the tensor's bytes, dtype and shape into `hash`; no protection from an opponent.
uint64_t hashed(uint64_t hash, const at::Tensor& tensor);

}  // namespace trainrun
