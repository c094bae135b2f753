#include "registry/kernels/rank_sums.h"

namespace trainrun::kernels {

std::optional<NumberType> number_type(at::ScalarType dtype) {
  switch (dtype) {
    case at::ScalarType::Float:
      return NumberType::kFloat32;
    case at::ScalarType::Double:
      return NumberType::kFloat64;
    case at::ScalarType::BFloat16:
      return NumberType::kBFloat16;
    case at::ScalarType::Half:
      return NumberType::kFloat16;
    case at::ScalarType::Long:
      return NumberType::kInt64;
    case at::ScalarType::Int:
      return NumberType::kInt32;
    case at::ScalarType::Char:
      return NumberType::kInt8;
    case at::ScalarType::Byte:
      return NumberType::kUInt8;
    default:
      return std::nullopt;
  }
}

void add_ranks(NumberType type, const RankStretches& ranks, double divisor, CpuPath path) {
  TRAINRUN_LOOP_OF(path, add_ranks)(type, ranks, divisor);
}

}  // namespace trainrun::kernels
