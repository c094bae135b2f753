#pragma once

#include "registry/components/adapters/adapted_weight.h"

namespace trainrun {

/// The two factors of one layer's update, which is scale * B A.
struct LowRankFactors {
  at::Tensor a;  // [r, in]
  at::Tensor b;  // [out, r]
  double scale = 1;
  double dropout = 0;

  /// B A [out, in], in the precision of the weights even where matrix products are computed in another.
  at::Tensor product() const;
};

/// y = base(x) + scale * B A dropout(x)
std::shared_ptr<const Operation> lora_linear(const AdapterInputs& in, LowRankFactors factors);
/// The row of each index, and scale * B A's column of it.
std::shared_ptr<const Operation> lora_rows(const AdapterInputs& in, const AdaptedWeight& layer, LowRankFactors factors);
/// y = m / |W + scale * B A| * (W + scale * B A) x + bias, the norms taken row by row and without gradients. Dropout
/// reaches what the adapter changes, not what the layer gives without it.
std::shared_ptr<const Operation> dora_linear(const AdapterInputs& in, AdaptedWeight layer, LowRankFactors factors,
                                             at::Tensor magnitude);

/// The 2-norms [out] of the rows of W + scale * B A, which gradients take for constants.
at::Tensor row_norms(const AdaptedWeight& layer, const LowRankFactors& factors);

}  // namespace trainrun
