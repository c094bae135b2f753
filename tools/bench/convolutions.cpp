// The three passes of single convolutions, in turns: oneDNN's, channels last, and Winograd's algorithm (registry/kernels).
// Prints the least CPU time of one thread, how many times as fast it is, and the rms error against float64.
//
//   convolutions [fp32|bf16 [ROUNDS [generic|AVX2|AVX-512]]]
//
// Build it beside a release build:
//   T=.deps/libtorch-2.11.0/torch; g++ -std=c++20 -O2 -fopenmp -I. -isystem $T/include -isystem $T/include/torch/csrc/api/include
//     tools/bench/convolutions.cpp -o /tmp/convolutions -Lbuild/release/lib -ltrainrun_registry -L$T/lib -ltorch_cpu -lc10
//     $T/lib/libgomp*.so* -Wl,--allow-shlib-undefined -Wl,-rpath,$PWD/build/release/lib:$PWD/$T/lib
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <malloc.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "registry/kernels/winograd.h"
#include "tools/bench/cpu_time.h"

using namespace trainrun::kernels;  // NOLINT(google-build-using-namespace)

namespace {

constexpr auto kLast = at::MemoryFormat::ChannelsLast;
enum Pass { kForward, kInputGradient, kFilterGradient };

struct Shape {
  int64_t images, channels, filters, size, taps, padding, stride = 1;
};

struct Contender {
  std::string name;
  std::function<at::Tensor(Pass)> run;
};

at::Tensor by_definition(Pass pass, const at::Tensor& x, const at::Tensor& w, const at::Tensor& grad_y,
                         const Shape& s) {
  const std::vector<int64_t> one{1, 1}, steps{s.stride, s.stride}, padding{s.padding, s.padding}, zero{0, 0};
  if (pass == kForward) return at::convolution(x, w, {}, steps, padding, one, false, zero, 1);
  const auto [grad_x, grad_w, grad_b] =
      at::convolution_backward(grad_y, x, w, c10::nullopt, steps, padding, one, false, zero, 1,
                               {pass == kInputGradient, pass == kFilterGradient, false});
  return pass == kInputGradient ? grad_x : grad_w;
}

double rms(const at::Tensor& x) { return x.to(at::kDouble).square().mean().sqrt().item<double>(); }

void measure(const Shape& s, at::ScalarType type, int rounds, CpuPath path) {
  const int64_t out = (s.size + 2 * s.padding - s.taps) / s.stride + 1;
  const double spread = std::sqrt(2.0 / static_cast<double>(s.channels * s.taps * s.taps));
  const at::Tensor x = at::randn({s.images, s.channels, s.size, s.size}).relu().to(type).contiguous(kLast);
  const at::Tensor w = at::randn({s.filters, s.channels, s.taps, s.taps}) * spread;
  const at::Tensor grad_y = at::randn({s.images, s.filters, out, out}).to(type).contiguous(kLast);
  const at::Tensor stored = w.to(type).contiguous(kLast);
  std::vector<Contender> all = {{"oneDNN", [&](Pass pass) { return by_definition(pass, x, stored, grad_y, s); }}};
  const auto add = [&](const std::string& name, WinogradTile tile) {
    all.push_back({name, [&, tile](Pass pass) {
                     const Winograd winograd(x.sizes(), w.sizes(), s.stride, {s.padding, s.padding},
                                             type == at::kBFloat16, tile, path);
                     return pass == kForward         ? winograd.forward(x, w, {})
                            : pass == kInputGradient ? winograd.input_gradient(grad_y, w)
                                                     : winograd.filter_gradient(x, grad_y);
                   }});
  };
  if (s.taps == 3 && s.stride == 1) {
    add("F(2x2,3x3)", WinogradTile::kOutputs2Taps3);
    add("F(4x4,3x3)", WinogradTile::kOutputs4Taps3);
    if (s.size == 2 && s.padding == 1) add("all of 2x2", WinogradTile::kPadded2Taps3);
  } else if (s.taps == 3) {
    add("F(2x2,3x3/2)", WinogradTile::kStrided2Taps3);
    add("F(4x4,3x3/2)", WinogradTile::kStrided4Taps3);
  }
  if (s.taps == 5) add("F(3x3,5x5)", WinogradTile::kOutputs3Taps5);
  for (const Pass pass : {kForward, kInputGradient, kFilterGradient}) {
    const at::Tensor exact = by_definition(pass, x.to(at::kDouble), w.to(at::kDouble), grad_y.to(at::kDouble), s);
    std::vector<double> errors, times(all.size(), 1e9);
    for (const Contender& one : all) errors.push_back(rms(one.run(pass).to(at::kDouble) - exact) / rms(exact));
    for (int round = 0; round < rounds; ++round) {
      for (size_t i = 0; i < all.size(); ++i) {
        const double start = cpu_milliseconds();
        all[i].run(pass);
        times[i] = std::min(times[i], cpu_milliseconds() - start);
      }
    }
    std::printf("%4ld x %3ld channels, %2ld x %2ld, batch %3ld, %ldx%ld/%ld, %-18s", s.channels, s.filters, s.size,
                s.size, s.images, s.taps, s.taps, s.stride,
                pass == kForward         ? "forward"
                : pass == kInputGradient ? "input's gradient"
                                         : "filters' gradient");
    for (size_t i = 0; i < all.size(); ++i) {
      std::printf("  %s %.2f ms (%.2f times, error %.1e)", all[i].name.c_str(), times[i], times[0] / times[i],
                  errors[i]);
    }
    std::printf("\n");
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);  // as trainrun does: memory is kept
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  at::set_num_threads(1);
  const auto type = argc > 1 && std::string(argv[1]) == "bf16" ? at::kBFloat16 : at::kFloat;
  const int rounds = argc > 2 ? std::stoi(argv[2]) : 5;
  CpuPath path = best_cpu_path();
  for (const CpuPath one : available_cpu_paths()) {
    if (argc > 3 && name_of(one) == argv[3]) path = one;
  }
  for (const Shape& shape : std::vector<Shape>{{128, 64, 64, 32, 3, 1},
                                               {128, 128, 128, 16, 3, 1},
                                               {128, 256, 256, 8, 3, 1},
                                               {128, 512, 512, 4, 3, 1},
                                               {128, 16, 16, 32, 3, 1},
                                               {128, 32, 32, 32, 3, 1},
                                               {128, 32, 64, 14, 3, 1},
                                               {64, 512, 512, 2, 3, 1},
                                               {64, 512, 256, 13, 5, 0},
                                               {128, 64, 128, 32, 3, 1, 2},
                                               {64, 128, 128, 16, 3, 1, 2},
                                               {64, 256, 256, 8, 3, 1, 2},
                                               {64, 512, 512, 4, 3, 1, 2},
                                               {16, 32, 64, 64, 3, 1, 2}}) {
    measure(shape, type, rounds, path);
  }
}
