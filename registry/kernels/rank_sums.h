#pragma once

#include <c10/core/ScalarType.h>

#include <optional>

#include "registry/kernels/cpu_path.h"
#include "registry/kernels/rank_sums_simd.h"

namespace trainrun::kernels {

/// How numbers of `dtype` are added; nothing where they are not: bool, complex and 8-bit floating-point numbers.
std::optional<NumberType> number_type(at::ScalarType dtype);

/// The sum of the same numbers of several ranks, written for each of them: `add_ranks` (rank_sums_simd.h). Every rank
/// that computes it gets the same bits.
void add_ranks(NumberType type, const RankStretches& ranks, double divisor = 1, CpuPath path = best_cpu_path());

}  // namespace trainrun::kernels
