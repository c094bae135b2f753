#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <optional>

#include "registry/kernels/cpu_path.h"

namespace trainrun::kernels {

/// self.bernoulli_(p, generator) of a CPU tensor: the same numbers, bit for bit, and the same generator afterwards. ATen
/// asks the generator twice for each number, which takes most of the time of a dropout; this asks it for 624 at once.
/// ATen computes tensors that have gaps or few numbers or that are of another type than float32, float64, float16,
/// bfloat16, uint8 and bool, and all of them on processors for which it draws otherwise (Intel's, by MKL, which is as
/// quick). Throws what ATen throws where p is no probability. `path` forces the instructions, for tests: it must be
/// available (Error).
at::Tensor& bernoulli(at::Tensor& self, double p, const std::optional<at::Generator>& generator,
                      std::optional<CpuPath> path = {});

/// From now on, LibTorch's own operations on the CPU use `bernoulli` too: at::dropout and attention with a dropout draw
/// their zeros by it. May be called again.
void use_quick_bernoulli();

}  // namespace trainrun::kernels
