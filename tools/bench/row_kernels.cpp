// Sums with norms, Linears with activations, and the middle of a SwiGLU, in turns: ATen's operations and those of registry/kernels, as autocast to
// bfloat16 runs them, or in float32. Prints the least CPU time of one thread, forward alone and with the backward pass,
// how many times as fast it is, and the rms errors of the output and of the input's gradient against float64.
//
//   row_kernels [fp32|bf16 [ROUNDS]]
//
// Build it beside a release build:
//   T=.deps/libtorch-2.11.0/torch; g++ -std=c++20 -O2 -fopenmp -I. -isystem $T/include -isystem $T/include/torch/csrc/api/include
//     tools/bench/row_kernels.cpp -o /tmp/row_kernels -Lbuild/release/lib -ltrainrun_registry -L$T/lib -ltorch_cpu -lc10
//     $T/lib/libgomp*.so* -Wl,--allow-shlib-undefined -Wl,-rpath,$PWD/build/release/lib:$PWD/$T/lib
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "registry/kernels/linear_function.h"
#include "registry/kernels/row_norm.h"
#include "registry/kernels/silu_product.h"
#include "tools/bench/cpu_time.h"

using namespace trainrun::kernels;  // NOLINT(google-build-using-namespace)

namespace {

struct Result {
  double forward = 1e9, whole = 1e9;  // milliseconds
  at::Tensor y, gradient;
};

using Tensors = std::vector<at::Tensor>;
using Function = std::function<Tensors(const Tensors&)>;  // from inputs to outputs

void once(const Function& function, const Tensors& inputs, Result& result) {
  at::manual_seed(2);
  const double begin = cpu_milliseconds();
  const Tensors outputs = function(inputs);
  result.forward = std::min(result.forward, cpu_milliseconds() - begin);
  Tensors gradients;
  for (const at::Tensor& output : outputs) gradients.push_back(at::ones({1}, output.options()).expand_as(output));
  const double backward = cpu_milliseconds();
  result.gradient = torch::autograd::grad(outputs, inputs, gradients)[0];
  result.whole = std::min(result.whole, result.forward + cpu_milliseconds() - backward);
  result.y = outputs[0];
}

void measure(const char* name, const Function& by_aten, const Function& by_kernel, const Tensors& inputs, bool is_half,
             int rounds) {
  Tensors wide;
  for (const at::Tensor& input : inputs) wide.push_back(input.detach().to(at::kDouble).requires_grad_());
  Result exact, theirs, ours;
  once(by_aten, wide, exact);
  at::autocast::set_autocast_enabled(at::kCPU, is_half);
  for (int i = 0; i < rounds; ++i) {
    once(by_aten, inputs, theirs);
    once(by_kernel, inputs, ours);
    at::autocast::clear_cache();
  }
  at::autocast::set_autocast_enabled(at::kCPU, false);
  std::printf(
      "%-34s forward %7.3f %7.3f ms, %.2f times; with backward %7.3f %7.3f ms, %.2f times; errors %.1e %.1e, gradient "
      "%.1e %.1e\n",
      name, theirs.forward, ours.forward, theirs.forward / ours.forward, theirs.whole, ours.whole,
      theirs.whole / ours.whole, error_of(theirs.y, exact.y), error_of(ours.y, exact.y),
      error_of(theirs.gradient, exact.gradient), error_of(ours.gradient, exact.gradient));
}

at::Tensor random_parameter(at::IntArrayRef sizes, double factor = 1) {
  return (at::randn(sizes) * factor).detach().requires_grad_();
}

/// x + dropout(addend), its norm, and the norm as a Linear reads it.
void measure_norm(const char* name, int64_t rows, int64_t features, double dropout, bool is_half, int rounds) {
  const at::Tensor addend = at::randn({rows, features}).to(is_half ? at::kBFloat16 : at::kFloat).requires_grad_();
  const Function by_aten = [&](const Tensors& in) -> Tensors {
    const at::Tensor sum = in[0] + at::dropout(in[1], dropout, dropout > 0);
    const at::Tensor y = at::layer_norm(sum, features, in[2], in[3]);
    return {is_half && y.scalar_type() == at::kFloat ? y.to(at::kBFloat16) : y, sum};
  };
  const Function by_kernel = [&](const Tensors& in) -> Tensors {
    const Normalized made = row_norm(in[0], {in[1], dropout}, {in[2], in[3]}, !is_half, is_half);
    return {is_half ? made.half : made.y, made.sum};
  };
  measure(name, by_aten, by_kernel,
          {random_parameter({rows, features}), addend, random_parameter({features}), random_parameter({features})},
          is_half, rounds);
}

void measure_linear(const char* name, int64_t rows, int64_t in_features, int64_t out, Activation activation,
                    bool has_bias, bool is_half, int rounds) {
  Tensors inputs = {random_parameter({rows, in_features}), random_parameter({out, in_features}, 0.05)};
  if (has_bias) inputs.push_back(random_parameter({out}));
  const Function by_aten = [&](const Tensors& in) -> Tensors {
    const at::Tensor y = at::linear(in[0], in[1], has_bias ? std::optional(in[2]) : std::nullopt);
    return {activation == Activation::kNone   ? y
            : activation == Activation::kRelu ? at::relu(y)
            : activation == Activation::kGelu ? at::gelu(y)
                                              : at::gelu(y, "tanh")};
  };
  const Function by_kernel = [&](const Tensors& in) -> Tensors {
    return {linear_function(in[0], {in[1], has_bias ? in[2] : at::Tensor(), false, activation})};
  };
  measure(name, by_aten, by_kernel, inputs, is_half, rounds);
}

/// SiLU(gate) * up.
void measure_silu_product(const char* name, int64_t rows, int64_t features, bool is_half, int rounds) {
  Tensors inputs;
  for (int i = 0; i < 2; ++i)
    inputs.push_back(at::randn({rows, features}).to(is_half ? at::kBFloat16 : at::kFloat).requires_grad_());
  const Function by_aten = [](const Tensors& in) -> Tensors { return {at::silu(in[0]) * in[1]}; };
  const Function by_kernel = [](const Tensors& in) -> Tensors { return {silu_product(in[0], in[1])}; };
  measure(name, by_aten, by_kernel, inputs, is_half, rounds);
}

}  // namespace

int main(int argc, char** argv) {
  const bool is_half = argc > 1 && std::string(argv[1]) == "bf16";
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 50;
  at::set_num_threads(1);
  measure_norm("Add, LayerNorm: 768 x 128", 768, 128, 0, is_half, rounds);
  measure_norm("Add, LayerNorm: 2048 x 384", 2048, 384, 0, is_half, rounds);
  measure_norm("Dropout, Add, LayerNorm: 2048 x 384", 2048, 384, 0.1, is_half, rounds);
  measure_norm("Dropout, Add, LayerNorm: 1024 x 768", 1024, 768, 0.1, is_half, rounds);
  measure_linear("Linear: 768 x 128 to 384", 768, 128, 384, Activation::kNone, false, is_half, rounds);
  measure_linear("Linear, GELU: 768 x 128 to 512", 768, 128, 512, Activation::kGelu, false, is_half, rounds);
  measure_linear("Linear, GELU: 2048 x 384 to 1536", 2048, 384, 1536, Activation::kGelu, true, is_half, rounds);
  measure_linear("Linear, GELU (tanh): 1024 x 768 to 3072", 1024, 768, 3072, Activation::kGeluTanh, true, is_half,
                 rounds / 3);
  measure_linear("Linear, ReLU: 2048 x 384 to 1536", 2048, 384, 1536, Activation::kRelu, true, is_half, rounds);
  measure_silu_product("SiLU, product: 768 x 344", 768, 344, is_half, rounds);
  measure_silu_product("SiLU, product: 1024 x 5632", 1024, 5632, is_half, rounds / 3);
}
