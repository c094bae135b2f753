#include "registry/kernels/few_rows_simd.h"

#include "registry/kernels/small_products.h"
#include "registry/kernels/vectors.h"

// NOLINTBEGIN(modernize-avoid-c-arrays): see README.md

// x is small, w large: x is turned, so that w is read once, in the order of memory, twelve rows of it side by side.

namespace trainrun::kernels::TRAINRUN_CPU_PATH {
namespace {

constexpr int64_t kDepth = 1024;  // features at a time: a panel of them stays in the L2 cache

/// Some rows of y, from its columns [begin, end) in `scratch`.
void put_outputs(const FewRows& shape, const float* scratch, const float* bias, int64_t begin, int64_t end, float* y,
                 int64_t rows) {
  for (int64_t part = 0; part < rows; part += kLanes) {
    for (int64_t n = begin; n < end; n += kLanes) {
      Floats square[kLanes];
      for (int64_t k = 0; k < kLanes; ++k) {
        square[k] = n + k < end ? load_all(scratch + (n - begin + k) * kPanel + part) : Floats{};
      }
      transpose(square);
      const Floats added = bias == nullptr ? Floats{} : load(bias + n, end - n);
      for (int64_t k = 0; k < lesser(kLanes, rows - part); ++k) {
        store(y + (part + k) * shape.out + n, square[k] + added, end - n);
      }
    }
  }
}

}  // namespace

void few_rows_transpose(const FewRows& shape, const float* x, int64_t begin, int64_t end, float* to) {
  for (int64_t first = 0; first < shape.panels() * kPanel; first += kLanes) {
    const int64_t rows = lesser(kLanes, shape.rows - first);
    for (int64_t j = begin; j < end; j += kLanes) {
      Floats square[kLanes];
      for (int64_t k = 0; k < kLanes; ++k) {
        square[k] = k < rows ? load(x + (first + k) * shape.in + j, end - j) : Floats{};
      }
      transpose(square);
      float* const column = to + (first / kPanel * shape.in + j) * kPanel + first % kPanel;
      for (int64_t k = 0; k < lesser(kLanes, end - j); ++k) store_all(column + k * kPanel, square[k]);
    }
  }
}

void few_rows_product(const FewRows& shape, const float* columns, const float* w, const float* bias, int64_t begin,
                      int64_t end, float* y, float* scratch) {
  for (int64_t panel = 0; panel < shape.panels(); ++panel) {
    const float* const x = columns + panel * shape.in * kPanel;
    for (int64_t depth = 0; depth < shape.in; depth += kDepth) {
      product_of_panel(end - begin, {w + begin * shape.in + depth, shape.in, 1}, x + depth * kPanel, kPanel,
                       lesser(kDepth, shape.in - depth), scratch, kPanel, depth > 0);
    }
    const int64_t first = panel * kPanel;
    put_outputs(shape, scratch, bias, begin, end, y + first * shape.out, lesser(kPanel, shape.rows - first));
  }
}

}  // namespace trainrun::kernels::TRAINRUN_CPU_PATH
// NOLINTEND(modernize-avoid-c-arrays)
