#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "registry/kinds/dataset.h"
#include "registry/kinds/transform.h"

namespace trainrun {

/// What each sample goes through on its way into a batch, in order.
using BatchTransforms = std::vector<std::shared_ptr<const Transform>>;

/// The batches of an epoch, in order. Destroyed at any time: what is being made is waited for, the rest is not made.
class BatchStream {
 public:
  virtual ~BatchStream() = default;
  /// The next batch; nothing after the last. What went wrong while it was made, on whatever thread, is thrown here; the
  /// call after that gives the batch after that.
  virtual std::optional<Batch> next() = 0;
};

}  // namespace trainrun
