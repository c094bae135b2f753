#pragma once

#include <optional>

#include "registry/kinds/index_range.h"
#include "registry/kinds/loss.h"

namespace trainrun {

/// The class indices that a DiceLoss reads; nothing where `loss` is another one, or reads none.
std::optional<IndexRange> overlap_range(const Component<LossKind>& loss, const at::Tensor& output,
                                        const at::Tensor& target);

}  // namespace trainrun
