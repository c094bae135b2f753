#pragma once

#include <ATen/core/Generator.h>
#include <nlohmann/json.hpp>

#include <functional>
#include <memory>
#include <optional>

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

  /// Whether it must see the training samples before it can be applied.
  virtual bool learns() const { return false; }
  /// `next` gives the training samples, batch by batch in the data set's order, as they reach this transform.
  virtual void learn(const std::function<std::optional<Batch>()>& next);
  /// What was learnt, as checkpoints keep it; null: nothing.
  virtual nlohmann::json learnt() const;
  /// Instead of `learn`. Throws DataError where `state` is of other samples.
  virtual void set_learnt(const nlohmann::json& state);
};

struct TransformInputs {
  /// The fields as they reach the transform. Empty where only `describe` will be called.
  DatasetInfo info;
};

struct TransformKind {
  static constexpr const char* kName = "transform";
  using Inputs = TransformInputs;
  using Product = std::unique_ptr<Transform>;
  using Common = NoCommon;
};
using TransformRegistry = Registry<TransformKind>;
const TransformRegistry& registry_of(const Catalog& catalog, TransformKind);

}  // namespace trainrun
