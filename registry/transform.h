#pragma once

#include <ATen/core/Generator.h>

#include <memory>

#include "registry/batch.h"
#include "registry/registry.h"

namespace trainrun {

/// Changes whole batches. Holds no state that a batch changes, so batches can be made in any order and on any thread.
class Transform {
 public:
  virtual ~Transform() = default;
  /// Changes what is known of the fields as `apply` will change the fields; throws LayerError where it does not fit.
  virtual void describe(DatasetInfo& info) const = 0;
  /// `generator` is seeded from the run's seed, the epoch and the number of the batch: the same batch is always changed
  /// the same way.
  virtual void apply(Batch& batch, at::Generator& generator) const = 0;
};

struct TransformInputs {};

struct TransformKind {
  static constexpr const char* kName = "transform";
  using Inputs = TransformInputs;
  using Product = std::unique_ptr<Transform>;
  using Common = NoCommon;
};
using TransformRegistry = Registry<TransformKind>;
const TransformRegistry& registry_of(const Catalog& catalog, TransformKind);

}  // namespace trainrun
