#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "registry/kinds/batch.h"

namespace trainrun {

/// The field beside a sequence that says which of its items are not padding.
std::string mask_name(const std::string& field);

/// Which items of a field's sequences are not padding: bool, [N, L]. Undefined where no mask lies beside it.
at::Tensor items_of(const Batch& batch, const std::string& field);

/// [N, L] as it lies beside `values` [N, L, …].
at::Tensor beside(const at::Tensor& items, const at::Tensor& values);

}  // namespace trainrun
