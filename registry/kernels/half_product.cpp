#include "registry/kernels/half_product.h"

// What a stub of LibTorch's has: one kernel for each of the instruction sets that it was itself compiled for.
#if defined(__x86_64__)
#define HAVE_AVX2_CPU_DEFINITION
#define HAVE_AVX512_CPU_DEFINITION
#endif

#include <ATen/Version.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/CPUBlas.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <atomic>

namespace trainrun::kernels {
namespace {

using at::native::TransposeType;
using Multiply = at::native::cpublas::gemm_fn;
using MultiplyStub = at::native::cpublas::gemm_stub_DECLARE_DISPATCH_type;

std::atomic<Multiply> by_aten = nullptr;
std::atomic<int64_t> num_products = 0;

constexpr int64_t kFewest = int64_t{1} << 14;  // multiplications; below, a call costs as much as what it computes
constexpr int64_t kBlock = 1024;               // rows, columns and depth that are widened at a time

/// A factor as BLAS gives it, column by column: as a tensor [columns, rows], of the part that begins at `column`, `row`.
at::Tensor part_of(const void* data, at::ScalarType type, int64_t step, std::array<int64_t, 2> begin,
                   std::array<int64_t, 2> sizes) {
  const auto bytes = static_cast<int64_t>(c10::elementSize(type));
  char* const at = static_cast<char*>(const_cast<void*>(data)) + (begin[0] * step + begin[1]) * bytes;
  return at::from_blob(at, sizes, {step, 1}, at::TensorOptions().dtype(type));
}

struct Factor {
  const void* data;
  at::ScalarType type;
  int64_t step;  // numbers from a column to the next
  bool is_transposed;

  /// Columns from `column` and rows from `row` of what is multiplied, in float32: [columns, rows].
  at::Tensor widened(int64_t column, int64_t columns, int64_t row, int64_t rows) const {
    if (!is_transposed) return part_of(data, type, step, {column, row}, {columns, rows}).to(at::kFloat).contiguous();
    return part_of(data, type, step, {row, column}, {rows, columns}).to(at::kFloat).contiguous().t();
  }
};

/// c = alpha a b + beta c, where a is [m, k], b [k, n], and all lie column by column.
// NOLINTNEXTLINE(readability-function-size): the parameters are BLAS's
void multiply(at::ScalarType type, TransposeType of_a, TransposeType of_b, int64_t m, int64_t n, int64_t k,
              const at::Scalar& alpha, const void* a, int64_t a_step, const void* b, int64_t b_step,
              const at::Scalar& beta, void* c, int64_t c_step) {
  if ((type != at::kBFloat16 && type != at::kHalf) || m * n * k < kFewest) {
    return by_aten.load()(type, of_a, of_b, m, n, k, alpha, a, a_step, b, b_step, beta, c, c_step);
  }
  ++num_products;
  const at::AutoDispatchBelowADInplaceOrView no_gradients;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCPU);
  const Factor left{a, type, a_step, of_a != TransposeType::NoTranspose};
  const Factor right{b, type, b_step, of_b != TransposeType::NoTranspose};
  for (int64_t column = 0; column < n; column += kBlock) {
    const int64_t columns = std::min(kBlock, n - column);
    for (int64_t row = 0; row < m; row += kBlock) {
      const int64_t rows = std::min(kBlock, m - row);
      at::Tensor sum;
      for (int64_t depth = 0; depth < k; depth += kBlock) {
        const int64_t depths = std::min(kBlock, k - depth);
        const at::Tensor own_left = left.widened(depth, depths, row, rows);
        const at::Tensor own_right = right.widened(column, columns, depth, depths);
        if (depth == 0) {
          sum = at::mm(own_right, own_left);
        } else {
          at::addmm_out(sum, sum, own_right, own_left);
        }
      }
      if (alpha.toDouble() != 1) sum.mul_(alpha);
      const at::Tensor result = part_of(c, type, c_step, {column, row}, {columns, rows});
      if (beta.toDouble() != 0) sum.add_(result, beta);
      result.copy_(sum);
    }
  }
}

#if defined(__x86_64__)
/// The kernel that ATen's stub takes here.
Multiply& taken() {
  const std::string capability = at::get_cpu_capability();
  if (capability.starts_with("AVX512") && MultiplyStub::AVX512 != nullptr) return MultiplyStub::AVX512;
  return capability == "DEFAULT" ? MultiplyStub::DEFAULT : MultiplyStub::AVX2;
}
#endif

}  // namespace

std::string multiply_halves_in_float32() {
#if defined(__x86_64__)
  if (by_aten.load() != nullptr) return "";
  Multiply& kernel = taken();
  by_aten = kernel;
  kernel = multiply;
  return "";
#else
  return "the processor is not an x86-64";
#endif
}

int64_t num_products_of_halves() { return num_products; }

}  // namespace trainrun::kernels
