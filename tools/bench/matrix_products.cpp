// Products of matrices as a Linear's forward and backward passes compute them, in turns by ATen (MKL, which here takes any
// processor for Intel's, and oneDNN) and by registry/kernels: the least CPU time of one thread, and what it makes in
// GFLOP/s. `bf16` (else float32): the weights are of float32, and ATen's time includes their cast.
//
// Build it beside a release build:
//   T=.deps/libtorch-2.11.0/torch; g++ -std=c++20 -O2 -rdynamic -fopenmp -I. -isystem $T/include
//     -isystem $T/include/torch/csrc/api/include tools/bench/matrix_products.cpp -o /tmp/products -Lbuild/release/lib -ltrainrun_registry
//     -L$T/lib -ltorch_cpu -lc10 $T/lib/libgomp*.so* -Wl,--allow-shlib-undefined -Wl,-rpath,$PWD/build/release/lib:$PWD/$T/lib
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string_view>

#include "registry/kernels/matrix_product.h"
#include "tools/bench/cpu_time.h"

namespace {

struct Times {
  double theirs = 1e9, ours = 1e9;
};

Times times_of(const at::Tensor& a, const at::Tensor& b, at::ScalarType type) {
  Times least;
  for (int i = 0; i < 30; ++i) {
    double begin = cpu_milliseconds();
    const at::Tensor theirs = at::mm(a, b.to(a.scalar_type())).to(type);
    least.theirs = std::min(least.theirs, cpu_milliseconds() - begin);
    begin = cpu_milliseconds();
    const at::Tensor ours = trainrun::kernels::matrix_product(a, b, type);
    least.ours = std::min(least.ours, cpu_milliseconds() - begin);
  }
  return least;
}

void print(const char* what, double work, const Times& times) {
  std::printf("  %s ATen %7.4f ms (%3.0f GFLOP/s), ours %7.4f (%3.0f), %.2f times", what, times.theirs,
              work / times.theirs, times.ours, work / times.ours, times.theirs / times.ours);
}

}  // namespace

/// MKL asks this before it uses AVX-512 (runner/process/matrix_products.cpp).
extern "C" __attribute__((visibility("default"))) int mkl_serv_intel_cpu_true() { return 1; }

int main(int count, char** words) {
  at::set_num_threads(1);
  const at::ScalarType type = count > 1 && std::string_view(words[1]) == "bf16" ? at::kBFloat16 : at::kFloat;
  if (!trainrun::kernels::supports_matrix_product(at::zeros({64, 64}, type), at::zeros({64, 64}, type))) {
    return std::puts("this processor has no such products"), 1;
  }
  using Sizes = std::array<int64_t, 3>;
  for (const auto& [rows, in, out] :
       {Sizes{768, 128, 384},   Sizes{768, 128, 128},   Sizes{768, 128, 512},    Sizes{768, 512, 128},
        Sizes{768, 128, 65},    Sizes{800, 384, 384},   Sizes{800, 384, 1536},   Sizes{800, 1536, 384},
        Sizes{1024, 768, 2304}, Sizes{1024, 3072, 768}, Sizes{1024, 768, 50257}, Sizes{32, 128, 128},
        Sizes{32, 5408, 128},   Sizes{128, 9216, 512},  Sizes{64, 256, 64},      Sizes{16, 256, 256},
        Sizes{64, 768, 768},    Sizes{128, 512, 512},   Sizes{2080, 384, 1152},  Sizes{16384, 64, 256}}) {
    const at::Tensor x = at::randn({rows, in}).to(type), w = at::randn({out, in});
    const at::Tensor grad = at::randn({rows, out}).to(type);
    const double work = 2e-6 * static_cast<double>(rows * in * out);
    std::printf("%4ld rows, %4ld to %5ld:", rows, in, out);
    print("y", work, times_of(x, w.t(), type));
    if (out % 2 == 0) print("; of x", work, times_of(grad, w, type));
    print("; of w", work, times_of(grad.t(), x, at::kFloat));
    std::puts("");
  }
}
