#include "registry/kernels/matrix_product.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sum.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "registry/kernels/cpu_path.h"
#include "registry/kernels/plain_tensor.h"
#include "registry/kernels/product_loops.h"

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
ProductFactor factor_of(const at::Tensor& x) {
  const bool is_bfloat16 = x.scalar_type() == at::kBFloat16;
  const void* const at = x.const_data_ptr();
  if (x.is_contiguous()) return {at, x.size(1), 1, is_bfloat16};
  return {at, 1, x.size(0), is_bfloat16};
}

ProductShape shape_of(const at::Tensor& a, const at::Tensor& b) { return {a.size(0), a.size(1), b.size(1)}; }

/// What a thread packs into, from one product to the next, so that it stays in this thread's caches.
uint32_t* room_of_thread() {
  thread_local const at::Tensor room = at::empty({ProductBlocks::kScratch}, at::kInt);
  return static_cast<uint32_t*>(room.mutable_data_ptr());
}

/// The parts of a product for as many threads: those of `rows` times `columns` threads, so that each packs as little as
/// it can of what others pack as well.
struct Parts {
  int64_t by_rows, by_columns;
  ProductPart of(const ProductShape& shape, int64_t part) const {
    constexpr int64_t kRowsOfPart = 4, kColumnsOfPart = ProductBlocks::kPanel / 2;
    const int64_t row = part / by_columns, column = part % by_columns;
    const auto bound = [](int64_t size, int64_t unit, int64_t i, int64_t parts) {
      return std::min(size, (size + unit - 1) / unit * i / parts * unit);
    };
    return {bound(shape.rows, kRowsOfPart, row, by_rows), bound(shape.rows, kRowsOfPart, row + 1, by_rows),
            bound(shape.columns, kColumnsOfPart, column, by_columns),
            bound(shape.columns, kColumnsOfPart, column + 1, by_columns)};
  }
};

#if defined(__x86_64__)
/// A product that threads share.
struct SharedProduct {
  ProductShape shape;
  ProductFactor a, b;
  ProductResult to;
  int64_t threads;

  bool is_bfloat16() const { return a.is_bfloat16; }
  int64_t units() const { return is_bfloat16() ? (shape.depth + 1) / 2 : shape.depth; }

  void multiply(const ProductPart& part, bool is_packed = false) const {
    const auto loops = is_bfloat16() ? multiply_part_bf16 : multiply_part_fp32;
    loops(shape, a, b, part, to, room_of_thread(), is_packed);
  }

  Parts equal_parts() const {
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

  void multiply_in_equal_parts() const {
    const Parts parts = equal_parts();
    at::parallel_for(0, parts.by_rows * parts.by_columns, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) multiply(parts.of(shape, part));
    });
  }

  /// Whether threads may take rows as they come to them, so that none waits for one that is slower: what they pack for
  /// some rows serves others as well, and costs little beside all that a thread multiplies.
  bool may_take_rows() const {
    constexpr int64_t kManyRows = 192;  // of a thread
    if (!is_bfloat16() && is_read_directly(shape, b)) return shape.rows >= 2 * ProductBlocks::kStrip * threads;
    if (!ProductBlocks::is_one_piece(a, units()) || shape.rows < kManyRows * threads) return false;
    return a.column == 1 || equal_parts().by_rows == threads;
  }

  void multiply_as_rows_are_taken() const {
    constexpr int64_t kFewest = 2 * ProductBlocks::kStrip;
    std::atomic<int64_t> taken = 0;  // rows of the first block of columns, then those of the next
    const int64_t columns = ProductBlocks::columns(a, units()), blocks = (shape.columns + columns - 1) / columns;
    at::parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
      int64_t packed = -1;
      for (int64_t first = taken; begin < end && first < blocks * shape.rows;) {
        const int64_t block = first / shape.rows, row = first % shape.rows, column = block * columns;
        const int64_t some = (blocks * shape.rows - first) / (2 * threads) / kFewest * kFewest;
        const int64_t rows = std::min(std::max(some, kFewest), shape.rows - row);
        if (!taken.compare_exchange_weak(first, first + rows)) continue;
        const int64_t column_end = std::min(column + columns, shape.columns);
        multiply({row, row + rows, column, column_end}, packed == block);
        packed = block;
        first = taken;
      }
    });
  }

  /// Whether to cut depth into slices, each a product by itself, so that the factors are read once: what is summed is
  /// small beside them, such as the gradient of a convolution's filters over all points of all images.
  bool is_deep() const {
    constexpr int64_t kFewSums = int64_t{1} << 16, kDeep = 4;  // slices
    return shape.rows * shape.columns <= kFewSums && shape.depth >= kDeep * depth_of_slice() && !to.is_bfloat16 &&
           to.bias == nullptr;
  }
  int64_t depth_of_slice() const { return 2 * ProductBlocks::kUnits * (is_bfloat16() ? 2 : 1); }

  /// The sums of all slices, [slices, rows, columns].
  at::Tensor multiplied_slices() const {
    const int64_t depth = depth_of_slice(), slices = (shape.depth + depth - 1) / depth;
    at::Tensor sums = at::empty({slices, shape.rows, shape.columns}, at::kFloat);
    auto* const first_sum = sums.mutable_data_ptr<float>();
    std::atomic<int64_t> taken = 0;
    at::parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
      for (int64_t slice = begin < end ? taken++ : slices; slice < slices; slice = taken++) {
        SharedProduct own = *this;
        own.shape.depth = std::min(depth, shape.depth - slice * depth);
        own.a.at = moved(a, slice * depth * a.column);
        own.b.at = moved(b, slice * depth * b.row);
        own.to.adds = false;
        own.to.at = first_sum + slice * shape.rows * shape.columns;
        own.multiply({0, shape.rows, 0, shape.columns});
      }
    });
    return sums;
  }

  static const void* moved(const ProductFactor& factor, int64_t numbers) {
    const int64_t size = factor.is_bfloat16 ? sizeof(at::BFloat16) : sizeof(float);
    return static_cast<const char*>(factor.at) + numbers * size;
  }
};
#endif

/// `to`: what is told of the result but its memory.
void multiply(const at::Tensor& a, const at::Tensor& b, at::Tensor& result, ProductResult to) {
#if defined(__x86_64__)
  constexpr int64_t kWorkOfThread = int64_t{1} << 17;  // multiplications
  to.at = result.mutable_data_ptr();
  const ProductShape shape = shape_of(a, b);
  const int64_t work = shape.rows * shape.depth * shape.columns;
  const SharedProduct product{shape, factor_of(a), factor_of(b), to,
                              std::clamp<int64_t>(work / kWorkOfThread, 1, at::get_num_threads())};
  if (product.is_deep()) {
    const at::Tensor sums = product.multiplied_slices();
    if (to.adds) {
      result.add_(sums.sum(0));
    } else {
      at::sum_out(result, sums, 0);
    }
  } else if (product.threads > 1 && product.may_take_rows()) {
    product.multiply_as_rows_are_taken();
  } else {
    product.multiply_in_equal_parts();
  }
#else
  static_cast<void>(a), static_cast<void>(b), static_cast<void>(result), static_cast<void>(to);
#endif
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

bool supports_matrix_product(const at::Tensor& a, const at::Tensor& b) {
  constexpr int64_t kFewestRows = 32, kFewestColumns = 16, kFewestDepth = 16;
  const at::ScalarType type = a.scalar_type(), other = b.scalar_type();
  const bool is_there = (type == at::kBFloat16 && (other == type || other == at::kFloat) && has_bfloat16_products()) ||
                        (type == at::kFloat && other == type && best_cpu_path() == CpuPath::kAvx512);
  if (!is_there || !is_matrix(a) || !is_matrix(b)) return false;
  const ProductShape shape = shape_of(a, b);
  return shape.rows >= kFewestRows && shape.columns >= kFewestColumns && shape.depth >= kFewestDepth;
}

at::Tensor matrix_product(const at::Tensor& a, const at::Tensor& b, at::ScalarType type, const at::Tensor& bias,
                          const at::Tensor& place) {
  at::Tensor result = place.defined() ? place : at::empty({a.size(0), b.size(1)}, a.options().dtype(type));
  const at::Tensor added =
      bias.defined() && a.scalar_type() == at::kBFloat16 ? bias.to(at::kBFloat16).to(at::kFloat) : bias;
  multiply(a, b, result, {nullptr, type == at::kBFloat16, added.defined() ? added.const_data_ptr<float>() : nullptr});
  return result;
}

void add_matrix_product(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b) {
  at::Tensor result = sum;
  multiply(a, b, result, {nullptr, false, nullptr, true});
}

}  // namespace trainrun::kernels
