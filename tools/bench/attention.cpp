// Attention of short sequences, in turns: ATen's and the one of registry/kernels. Prints the least CPU time of one thread,
// forward alone and with the backward pass, how many times as fast it is, and the rms errors of the output and of the
// queries' gradient against float64.
//
//   attention [fp32|bf16 [ROUNDS]]
//
// Build it beside a release build:
//   T=.deps/libtorch-2.11.0/torch; g++ -std=c++20 -O2 -fopenmp -I. -isystem $T/include -isystem $T/include/torch/csrc/api/include
//     tools/bench/attention.cpp -o /tmp/attention -Lbuild/release/lib -ltrainrun_registry -L$T/lib -ltorch_cpu -lc10
//     $T/lib/libgomp*.so* -Wl,--allow-shlib-undefined -Wl,-rpath,$PWD/build/release/lib:$PWD/$T/lib
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "registry/kernels/short_attention.h"
#include "tools/bench/cpu_time.h"

using namespace trainrun::kernels;  // NOLINT(google-build-using-namespace)

namespace {

struct Shape {
  const char* name;
  int64_t batch, heads, length, features;
  bool is_causal, is_padded;
  double dropout;
};

struct Result {
  double forward = 1e9, whole = 1e9;  // milliseconds
  at::Tensor y, gradient;
};

using Function =
    std::function<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, const AttentionTerms&)>;

at::Tensor by_aten(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionTerms& terms) {
  const auto mask = terms.mask.defined() ? std::optional(terms.mask.to(q.scalar_type())) : std::nullopt;
  return at::scaled_dot_product_attention(q, k, v, mask, terms.dropout, terms.is_causal);
}

at::Tensor by_kernel(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionTerms& terms) {
  return short_attention(q, k, v, terms);
}

void measure(const Shape& s, at::ScalarType type, int rounds) {
  at::manual_seed(1);
  const at::Tensor packed = at::randn({s.length, s.batch, 3 * s.heads * s.features}).to(type);
  const auto inputs_in = [&](at::ScalarType wanted) {
    std::vector<at::Tensor> heads;
    for (const at::Tensor& part : packed.chunk(3, -1)) {
      at::Tensor head = part.unflatten(-1, {s.heads, s.features}).permute({1, 2, 0, 3}).detach();
      if (wanted != type) head = head.to(wanted);
      heads.push_back(head.requires_grad_());
    }
    return heads;
  };
  AttentionTerms terms{{}, s.dropout, s.is_causal, {}};
  if (s.is_padded) {
    const at::Tensor lengths = at::randint(s.length / 2, s.length + 1, {s.batch, 1, 1, 1});
    terms.mask = at::arange(s.length).view({1, 1, 1, -1}).ge(lengths).to(at::kFloat) * -1e9;
  }
  const at::Tensor grad_y = at::randn({s.batch, s.heads, s.length, s.features}).to(type);
  const auto once = [&](const Function& attention, const std::vector<at::Tensor>& in, Result& result) {
    at::manual_seed(2);
    const double begin = cpu_milliseconds();
    result.y = attention(in[0], in[1], in[2], terms);
    result.forward = std::min(result.forward, cpu_milliseconds() - begin);
    result.gradient = torch::autograd::grad({result.y}, {in[0], in[1], in[2]}, {grad_y.to(in[0].scalar_type())})[0];
    result.whole = std::min(result.whole, cpu_milliseconds() - begin);
  };
  Result exact, theirs, ours;
  once(by_aten, inputs_in(at::kDouble), exact);
  const std::vector<at::Tensor> in = inputs_in(type);
  for (int i = 0; i < rounds; ++i) {
    once(by_aten, in, theirs);
    once(by_kernel, in, ours);
  }
  std::printf(
      "%-28s forward %7.3f %7.3f ms, %.2f times; with backward %7.3f %7.3f ms, %.2f times; errors %.1e %.1e, gradient "
      "%.1e %.1e\n",
      s.name, theirs.forward, ours.forward, theirs.forward / ours.forward, theirs.whole, ours.whole,
      theirs.whole / ours.whole, error_of(theirs.y, exact.y), error_of(ours.y, exact.y),
      error_of(theirs.gradient, exact.gradient), error_of(ours.gradient, exact.gradient));
}

}  // namespace

int main(int argc, char** argv) {
  const auto type = argc > 1 && std::string(argv[1]) == "bf16" ? at::kBFloat16 : at::kFloat;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 20;
  at::set_num_threads(1);
  for (const Shape& shape : std::vector<Shape>{{"nanoGPT, CPU setting", 12, 4, 64, 32, true, false, 0},
                                               {"MiniLM, 8 x 128, padded", 8, 12, 128, 32, false, true, 0},
                                               {"MiniLM, dropout 0.1", 8, 12, 128, 32, false, true, 0.1},
                                               {"GPT-2, 2 x 512", 2, 12, 512, 64, true, false, 0},
                                               {"GPT-2, dropout 0.1", 1, 12, 512, 64, true, false, 0.1},
                                               {"ViT-S, 65 patches", 16, 6, 65, 64, false, false, 0},
                                               {"heads of 128", 4, 4, 256, 128, true, false, 0},
                                               {"heads of 24", 16, 4, 50, 24, false, false, 0}}) {
    measure(shape, type, rounds);
  }
}
