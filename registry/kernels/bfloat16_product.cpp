#include "registry/kernels/bfloat16_product.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>

#include "registry/kernels/bfloat16_loops.h"
#include "registry/kernels/cpu_path.h"
#include "registry/kernels/plain_tensor.h"

namespace trainrun::kernels {
namespace {

/// Whether x.t().is_contiguous(), without the view, which would take longer than the question.
bool is_turned(const at::Tensor& x) {
  return (x.size(0) == 1 || x.stride(0) == 1) && (x.size(1) == 1 || x.stride(1) == x.size(0));
}
/// A matrix that has no gaps, or is the transpose of one that has none.
bool is_matrix(const at::Tensor& x) {
  return x.dim() == 2 && x.numel() > 0 && is_plain_cpu(x) && (x.is_contiguous() || is_turned(x));
}

/// The steps of a matrix; of one with a single row or column, those of a matrix that has more.
PairedFactor factor_of(const at::Tensor& x) {
  const bool is_bfloat16 = x.scalar_type() == at::kBFloat16;
  const void* const at = x.const_data_ptr();
  if (x.is_contiguous()) return {at, x.size(1), 1, is_bfloat16};
  return {at, 1, x.size(0), is_bfloat16};
}

PairedProduct shape_of(const at::Tensor& a, const at::Tensor& b) { return {a.size(0), a.size(1), b.size(1)}; }

at::Tensor pairs_for(int64_t count) { return at::empty({count}, at::kInt); }
uint32_t* pairs_of(const at::Tensor& tensor) { return static_cast<uint32_t*>(tensor.mutable_data_ptr()); }

constexpr int64_t kPairsOfThread = int64_t{1} << 14;

/// The rows of `a`, of an odd number of bfloat16, each with a zero after it, so that its last pair does not reach into the
/// next row.
at::Tensor even_rows(const at::Tensor& a, const PairedProduct& shape) {
  at::Tensor rows = pairs_for(shape.rows * shape.pairs());
  const auto* const from = static_cast<const char*>(a.const_data_ptr());
  uint32_t* const to = pairs_of(rows);
  const int64_t bytes = 2 * shape.depth;
  at::parallel_for(0, shape.rows, std::max<int64_t>(1, kPairsOfThread / shape.pairs()),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t row = begin; row < end; ++row) {
                       uint32_t* const own = to + row * shape.pairs();
                       own[shape.pairs() - 1] = 0;
                       std::memcpy(own, from + row * bytes, static_cast<size_t>(bytes));
                     }
                   });
  return rows;
}

}  // namespace

bool has_bfloat16_products() {
#if defined(__x86_64__)
  static const bool has = best_cpu_path() == CpuPath::kAvx512 && __builtin_cpu_supports("avx512bf16");
  return has;
#else
  return false;
#endif
}

bool supports_bfloat16_product(const at::Tensor& a, const at::Tensor& b) {
  constexpr int64_t kFewestRows = 32, kFewestColumns = 16, kFewestDepth = 16;
  if (!has_bfloat16_products() || !is_matrix(a) || !is_matrix(b) || a.scalar_type() != at::kBFloat16) return false;
  if (b.scalar_type() != at::kBFloat16 && b.scalar_type() != at::kFloat) return false;
  const PairedProduct shape = shape_of(a, b);
  return shape.rows >= kFewestRows && shape.columns >= kFewestColumns && shape.depth >= kFewestDepth;
}

at::Tensor bfloat16_product(const at::Tensor& a, const at::Tensor& b, at::ScalarType type, const at::Tensor& bias) {
  const PairedProduct shape = shape_of(a, b);
  at::Tensor result = at::empty({shape.rows, shape.columns}, a.options().dtype(type));
#if defined(__x86_64__)
  const int64_t pairs = shape.pairs();
  const at::Tensor panels = pairs_for(shape.panels() * pairs * PairedProduct::kColumns);
  const int64_t panels_of_thread = std::max<int64_t>(1, kPairsOfThread / (pairs * PairedProduct::kColumns));
  at::parallel_for(0, shape.panels(), panels_of_thread, [&](int64_t begin, int64_t end) {
    pack_panels_bf16(shape, factor_of(b), begin, end, pairs_of(panels));
  });
  PairedRows rows{static_cast<const uint32_t*>(a.const_data_ptr()), pairs, 1, PairedProduct::kStrip * pairs};
  at::Tensor strips;
  if (a.is_contiguous() && shape.depth % 2 != 0) {
    strips = even_rows(a, shape);
    rows.at = pairs_of(strips);
  } else if (!a.is_contiguous()) {
    strips = pairs_for(shape.strips() * pairs * PairedProduct::kStrip);
    const int64_t strips_of_thread = std::max<int64_t>(1, kPairsOfThread / (pairs * PairedProduct::kStrip));
    at::parallel_for(0, shape.strips(), strips_of_thread, [&](int64_t begin, int64_t end) {
      pack_strips_bf16(shape, factor_of(a), begin, end, pairs_of(strips));
    });
    rows = {pairs_of(strips), 1, PairedProduct::kStrip, PairedProduct::kStrip * pairs};
  }
  const at::Tensor added = bias.defined() ? bias.to(at::kBFloat16).to(at::kFloat) : bias;
  const PairedResult to{result.mutable_data_ptr(), type == at::kBFloat16,
                        added.defined() ? added.const_data_ptr<float>() : nullptr};
  at::parallel_for(0, shape.strips(), 1, [&](int64_t begin, int64_t end) {
    multiply_strips_bf16(shape, rows, pairs_of(panels), begin, end, to);
  });
#else
  static_cast<void>(b), static_cast<void>(bias);
#endif
  return result;
}

}  // namespace trainrun::kernels
