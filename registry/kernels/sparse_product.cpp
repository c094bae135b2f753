#include "registry/kernels/sparse_product.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "registry/kernels/own_products.h"
#include "registry/kernels/plain_tensor.h"
#include "registry/kernels/sparse_product_simd.h"

namespace trainrun::kernels {

bool has_many_zeros(const at::Tensor& left, int64_t columns) {
  constexpr int64_t kMostRows = 512, kFewestProducts = int64_t{1} << 22;
  const bool fits = uses_own_products() && best_cpu_path() == CpuPath::kAvx512 && left.dim() == 2 &&
                    left.size(0) <= kMostRows && left.numel() * columns >= kFewestProducts && is_dense_float(left);
  if (!fits) return false;
  const int64_t found = TRAINRUN_LOOP_OF(CpuPath::kAvx512, count_nonzero)(left.const_data_ptr<float>(), left.numel());
  return 5 * found <= 3 * left.numel();  // at 65 to 70 % both take the same time
}

at::Tensor sparse_product(const at::Tensor& left, const at::Tensor& right, const at::Tensor& to, CpuPath path) {
  at::Tensor result = to.defined() ? to : at::empty({left.size(0), right.size(1)}, right.options());
  const bool is_turned = !left.is_contiguous();
  const SparseProduct product{left.const_data_ptr<float>(),
                              is_turned ? 1 : left.size(1),
                              is_turned ? left.size(0) : 1,
                              right.const_data_ptr<float>(),
                              result.mutable_data_ptr<float>(),
                              left.size(0),
                              left.size(1),
                              right.size(1)};
  constexpr int64_t kLine = 16;  // floats: no two threads write to one
  const int64_t lines = (product.columns + kLine - 1) / kLine;
  const int64_t threads = std::clamp<int64_t>(lines, 1, at::get_num_threads());
  at::parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
    const at::Tensor scratch = at::empty({SparseProduct::kScratch}, at::kFloat);
    for (int64_t part = begin; part < end; ++part) {
      const int64_t first = lines * part / threads * kLine;
      const int64_t last = std::min(lines * (part + 1) / threads * kLine, product.columns);
      TRAINRUN_LOOP_OF(path, sparse_multiply)(product, first, last, scratch.mutable_data_ptr<float>());
    }
  });
  return result;
}

}  // namespace trainrun::kernels
