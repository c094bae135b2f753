// Times the fused ReLU and MaxPool2d (registry/kernels/max_pool.h) beside ATen's two operations, forward and
// backward, in turns, on every instruction path that the processor has, with 1 and 2 threads. Prints the median CPU time
// of a pass of each, and the median ratio of passes that are neighbours in time, in CPU time, which a busy machine hardly
// affects, and in wall-clock time. A word as argument chooses the cases whose names contain it: mnist_cnn.
//
// Build it beside a release build:
//   T=.deps/libtorch-2.11.0/torch; g++ -std=c++20 -O2 -fopenmp -I. -isystem $T/include -isystem $T/include/torch/csrc/api/include
//     tools/bench/relu_max_pool.cpp -o /tmp/relu_max_pool -Lbuild/release/lib -ltrainrun_registry -L$T/lib -ltorch_cpu -lc10
//     $T/lib/libgomp*.so* -Wl,--allow-shlib-undefined -Wl,-rpath,$PWD/build/release/lib:$PWD/$T/lib
#include <ATen/Parallel.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/relu.h>
#include <malloc.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdio>
#include <ctime>
#include <string>
#include <vector>

#include "registry/kernels/max_pool.h"

using namespace trainrun::kernels;

namespace {

constexpr int kRounds = 9;
constexpr double kSecondsPerRound = 0.02;

struct Case {
  std::string name;
  std::vector<int64_t> shape;
  MaxPoolWindow window;
  at::MemoryFormat format = at::MemoryFormat::Contiguous;
  at::ScalarType dtype = at::kFloat;
};

struct Seconds {
  double wall, cpu;  // cpu: of all threads; what else the machine does hardly shows in it
};

template <class Work>
Seconds seconds_of(const Work& work, int64_t times) {
  const auto start = std::chrono::steady_clock::now();
  const std::clock_t cpu_start = std::clock();
  for (int64_t i = 0; i < times; ++i) work();
  const double cpu = static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC;
  const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return {wall / static_cast<double>(times), cpu / static_cast<double>(times)};
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Runs `pool` on x and sends `gradient` back through it.
template <class Pool>
void step(const Pool& pool, const at::Tensor& x, const at::Tensor& gradient) {
  torch::autograd::grad({pool(x)}, {x}, {gradient});
}

void measure(const Case& c, CpuPath path, int threads) {
  at::set_num_threads(threads);
  const MaxPoolWindow& w = c.window;
  const at::Tensor x = at::randn(c.shape).to(c.dtype).contiguous(c.format).requires_grad_();
  const auto aten = [&](const at::Tensor& in) {
    return at::max_pool2d(at::relu(in), w.kernel_size, w.stride, w.padding, w.dilation, w.ceil_mode);
  };
  const auto fused = [&](const at::Tensor& in) { return relu_max_pool2d(in, w, path); };
  const at::Tensor gradient = at::randn_like(aten(x).detach());
  const auto times = static_cast<int64_t>(kSecondsPerRound / seconds_of([&] { step(aten, x, gradient); }, 5).cpu) + 1;
  std::vector<double> theirs, ours, ratios, cpu_ratios;
  for (int round = 0; round < kRounds; ++round) {
    const Seconds a = seconds_of([&] { step(aten, x, gradient); }, times);
    const Seconds b = seconds_of([&] { step(fused, x, gradient); }, times);
    theirs.push_back(a.cpu);
    ours.push_back(b.cpu);
    ratios.push_back(a.wall / b.wall);
    cpu_ratios.push_back(a.cpu / b.cpu);
  }
  std::printf("%-34s %-8s %7d %10.0f %10.0f %7.2f %7.2f\n", c.name.c_str(), name_of(path).c_str(), threads,
              median(theirs) * 1e6, median(ours) * 1e6, median(cpu_ratios), median(ratios));
}

}  // namespace

/// Measures the cases whose names hold the argument, or all.
int main(int argc, char** argv) {
  const std::string wanted = argc > 1 ? argv[1] : "";
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  mallopt(M_MMAP_THRESHOLD, 1 << 30);  // as the program does: memory is kept from step to step
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  const MaxPoolWindow halving{{2, 2}, {2, 2}}, stem{{3, 3}, {2, 2}, {1, 1}};
  const auto last = at::MemoryFormat::ChannelsLast;
  const std::vector<Case> cases = {
      {"mnist_cnn [32, 32, 26, 26]", {32, 32, 26, 26}, halving},
      {"mnist_cnn [64, 32, 26, 26]", {64, 32, 26, 26}, halving},
      {"LeNet [32, 16, 8, 8]", {32, 16, 8, 8}, halving},
      {"VGG [8, 64, 56, 56]", {8, 64, 56, 56}, halving},
      {"ResNet stem [4, 64, 112, 112] 3x3", {4, 64, 112, 112}, stem},
      {"[64, 32, 26, 26] channels_last", {64, 32, 26, 26}, halving, last},
      {"ResNet stem, channels_last", {4, 64, 112, 112}, stem, last},
      {"[64, 32, 26, 26] bfloat16", {64, 32, 26, 26}, halving, at::MemoryFormat::Contiguous, at::kBFloat16},
  };
  std::printf("%-34s %-8s %7s %10s %10s %7s %7s\n", "forward and backward", "path", "threads", "ATen us", "fused us",
              "CPU", "wall");
  for (const Case& c : cases) {
    if (c.name.find(wanted) == std::string::npos) continue;
    for (const CpuPath path : available_cpu_paths()) {
      for (const int threads : {1, 2}) measure(c, path, threads);
    }
  }
}
