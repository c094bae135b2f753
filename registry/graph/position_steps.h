#pragma once

#include <memory>

#include "registry/graph/operation.h"

// Operations between tensors of all positions, [N, T, …], and of some: of those that a mask marks, side by side,
// [1, K, …], or of the first ones, [N, 1, …].

namespace trainrun {

/// [N, T] mask to [K] int64: the numbers (n * T + t) of the positions for which it is not 0, and of the first of each
/// text; of texts for which all of it is 0, all. A few more, so that K is a multiple of 32 (products take less time to
/// prepare for sizes that they had before); all where few could be left out, and where the mask is not of integers, for
/// which readers do not agree what marks padding, or not in the CPU's memory.
std::shared_ptr<const Operation> list_masked();
/// [N, T, …] to [N] int64: the numbers of the first positions.
std::shared_ptr<const Operation> list_first();

/// [N, T, …], the numbers of the masked and the mask, to [1, K, …]. Throws c10::Error where the mask is of other N or T.
std::shared_ptr<const Operation> take_masked();
/// [1, K, …], their numbers, and a tensor [N, T, …] for the sizes, to [N, T, …], with zeros at the others.
std::shared_ptr<const Operation> put_masked_back();
/// [N, T, …] to [N, 1, …].
std::shared_ptr<const Operation> take_first();
/// [1, K, …], their numbers, and a tensor [N, T, …] for the sizes, to [N, 1, …].
std::shared_ptr<const Operation> take_first_of_masked();
/// [N, 1, …] and a tensor [N, T, …] for the sizes, to [N, T, …], with zeros at the others.
std::shared_ptr<const Operation> put_first_back();

}  // namespace trainrun
