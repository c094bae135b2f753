#pragma once

#include "runner/data/batch_stream.h"

namespace trainrun {

/// In which order transforms are applied, by their numbers in the recipe's order, which their draws depend on: those that
/// scale the values come after those that only move them, so that what is moved are bytes where pixels are bytes. No
/// result changes by it.
std::vector<size_t> application_order(const BatchTransforms& transforms);

/// How many at the end of `order` may be applied wherever the batch is: they change each value by itself.
size_t num_pointwise_last(const BatchTransforms& transforms, const std::vector<size_t>& order);

}  // namespace trainrun
