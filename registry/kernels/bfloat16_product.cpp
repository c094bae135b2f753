#include "registry/kernels/bfloat16_product.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdint>

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

/// What a thread packs into, from one product to the next, so that it stays in this thread's caches.
uint32_t* room_of_thread() {
  thread_local const at::Tensor room = at::empty({PairedBlocks::kScratch}, at::kInt);
  return static_cast<uint32_t*>(room.mutable_data_ptr());
}

/// The parts of a product for as many threads: those of `rows` times `columns` threads, so that each packs as little as
/// it can of what others pack as well.
struct Parts {
  int64_t by_rows, by_columns;
  ProductPart of(const PairedProduct& shape, int64_t part) const {
    constexpr int64_t kRowsOfPart = 4, kColumnsOfPart = PairedBlocks::kPanel;
    const int64_t row = part / by_columns, column = part % by_columns;
    const auto bound = [](int64_t size, int64_t unit, int64_t i, int64_t parts) {
      return std::min(size, (size + unit - 1) / unit * i / parts * unit);
    };
    return {bound(shape.rows, kRowsOfPart, row, by_rows), bound(shape.rows, kRowsOfPart, row + 1, by_rows),
            bound(shape.columns, kColumnsOfPart, column, by_columns),
            bound(shape.columns, kColumnsOfPart, column + 1, by_columns)};
  }
};

Parts parts_of(const PairedProduct& shape, const PairedFactor& a, const PairedFactor& b) {
  constexpr int64_t kWorkOfThread = int64_t{1} << 17;  // multiplications
  const int64_t work = shape.rows * shape.depth * shape.columns;
  const int64_t threads = std::clamp<int64_t>(work / kWorkOfThread, 1, at::get_num_threads());
  Parts best{threads, 1};
  const int64_t of_row = a.column == 1 ? 1 : 2, of_column = b.is_bfloat16 ? 1 : 2;  // what packing costs
  const auto packed = [&](const Parts& parts) {
    return of_row * shape.rows / parts.by_rows + of_column * shape.columns / parts.by_columns;
  };
  for (int64_t by_rows = 1; by_rows <= threads; ++by_rows) {
    const Parts parts{by_rows, threads / by_rows};
    if (threads % by_rows == 0 && packed(parts) < packed(best)) best = parts;
  }
  return best;
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
  const at::Tensor added = bias.defined() ? bias.to(at::kBFloat16).to(at::kFloat) : bias;
  const PairedResult to{result.mutable_data_ptr(), type == at::kBFloat16,
                        added.defined() ? added.const_data_ptr<float>() : nullptr};
  const PairedFactor left = factor_of(a), right = factor_of(b);
  const Parts parts = parts_of(shape, left, right);
  at::parallel_for(0, parts.by_rows * parts.by_columns, 1, [&](int64_t begin, int64_t end) {
    uint32_t* const room = room_of_thread();
    for (int64_t part = begin; part < end; ++part) {
      multiply_part_bf16(shape, left, right, parts.of(shape, part), to, room);
    }
  });
#else
  static_cast<void>(b), static_cast<void>(bias);
#endif
  return result;
}

}  // namespace trainrun::kernels
