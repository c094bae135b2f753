#pragma once

// A loop that is compiled once for each kind of instructions: NAME_simd.cpp defines it in namespace TRAINRUN_CPU_PATH,
// and CMakeLists.txt compiles this one source as `generic`, and on x86-64 as `avx2` and `avx512` (see README.md).

#ifndef TRAINRUN_CPU_PATH
#define TRAINRUN_CPU_PATH generic
#endif

/// Declares a loop on every path: TRAINRUN_ON_EACH_PATH(void add(const float* a, float* to, int64_t count))
#if defined(__x86_64__)
#define TRAINRUN_ON_EACH_PATH(...) \
  namespace generic {              \
  __VA_ARGS__;                     \
  }                                \
  namespace avx2 {                 \
  __VA_ARGS__;                     \
  }                                \
  namespace avx512 {               \
  __VA_ARGS__;                     \
  }
#else
#define TRAINRUN_ON_EACH_PATH(...) \
  namespace generic {              \
  __VA_ARGS__;                     \
  }
#endif

/// The function TRAINRUN_LOOP_OF(path, loop) or (path, loop<T, …>) of that path (CpuPath), which must be available.
#if defined(__x86_64__)
#define TRAINRUN_LOOP_OF(path, ...)                                    \
  ((path) == trainrun::kernels::CpuPath::kAvx512 ? avx512::__VA_ARGS__ \
   : (path) == trainrun::kernels::CpuPath::kAvx2 ? avx2::__VA_ARGS__   \
                                                 : generic::__VA_ARGS__)
#else
#define TRAINRUN_LOOP_OF(path, ...) (static_cast<void>(path), generic::__VA_ARGS__)
#endif
