#pragma once

#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <string>

#include "registry/language/error.h"

namespace trainrun {

/// The error of a layer that does not fit its inputs, or whose parameters do not fit together. The graph adds the
/// place.
class LayerError : public Error {
 public:
  using Error::Error;
};

/// The batch size of the examples that stand for data while shapes are found.
inline constexpr int64_t kExampleBatch = 2;

/// "[N, 32, 26, 26]": a shape with the batch left open.
std::string shape_text(c10::ArrayRef<int64_t> shape);

}  // namespace trainrun
