#pragma once

#include <ATen/TensorOperators.h>

#include <ctime>

// What the benchmarks of kernels share.

/// Of this thread: hardly affected by what else runs on the machine.
inline double cpu_milliseconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) * 1e-6;
}

/// The rms error of x, against that of `exact`, in float64.
inline double error_of(const at::Tensor& x, const at::Tensor& exact) {
  const auto rms = [](const at::Tensor& t) { return t.square().mean().sqrt().item<double>(); };
  return rms(x.detach().to(at::kDouble) - exact.detach()) / rms(exact.detach());
}
