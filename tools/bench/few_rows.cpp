// Products of few rows, as a Linear of a small batch computes them, in turns by MKL and by registry/kernels: the least CPU
// time of one thread, and what it makes in GFLOP/s. MKL uses all of an AMD processor here, as it does in trainrun.
//
// Build it beside a release build:
//   T=.deps/libtorch-2.11.0/torch; g++ -std=c++20 -O2 -rdynamic -fopenmp -I. -isystem $T/include
//     -isystem $T/include/torch/csrc/api/include tools/bench/few_rows.cpp -o /tmp/few_rows -Lbuild/release/lib -ltrainrun_registry
//     -L$T/lib -ltorch_cpu -lc10 $T/lib/libgomp*.so* -Wl,--allow-shlib-undefined -Wl,-rpath,$PWD/build/release/lib:$PWD/$T/lib
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>

#include "registry/kernels/linear.h"
#include "registry/kernels/own_products.h"
#include "tools/bench/cpu_time.h"

// NOLINTNEXTLINE(readability-identifier-naming): MKL's name
extern "C" __attribute__((visibility("default"))) int mkl_serv_intel_cpu_true() { return 1; }

namespace {}  // namespace

int main() {
  using trainrun::kernels::few_rows_pay;
  at::set_num_threads(1);
  trainrun::kernels::use_own_products(true);
  for (const auto& [rows, in, out] : {std::array<int64_t, 3>{32, 5408, 128},
                                      {64, 5408, 128},
                                      {128, 5408, 128},
                                      {32, 1024, 256},
                                      {32, 256, 128},
                                      {64, 784, 512},
                                      {128, 784, 128},
                                      {128, 512, 512},
                                      {128, 64, 16},
                                      {32, 64, 16},
                                      {32, 64, 64}}) {
    const at::Tensor x = at::randn({rows, in}), w = at::randn({out, in}), bias = at::randn({out});
    double theirs = 1e9, ours = 1e9;
    for (int i = 0; i < 60; ++i) {
      double begin = cpu_milliseconds();
      const at::Tensor a = at::linear(x, w, bias);
      theirs = std::min(theirs, cpu_milliseconds() - begin);
      begin = cpu_milliseconds();
      const at::Tensor b = trainrun::kernels::linear(x, w, bias);
      ours = std::min(ours, cpu_milliseconds() - begin);
    }
    const double work = 2e-6 * static_cast<double>(rows * in * out);
    std::printf("%4ld rows, %4ld to %3ld: MKL %7.4f ms (%3.0f GFLOP/s), ours %7.4f ms (%3.0f), %.2f times%s\n", rows,
                in, out, theirs, work / theirs, ours, work / ours, theirs / ours,
                few_rows_pay(rows, in, out) ? "" : ": left to MKL");
  }
}
