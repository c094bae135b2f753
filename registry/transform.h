#pragma once

#include <nlohmann/json.hpp>

#include <functional>
#include <memory>
#include <optional>

#include "registry/batch.h"
#include "registry/registry.h"
#include "registry/sample_draws.h"

namespace trainrun {

/// Changes whole batches. Holds no state that a batch changes, so batches can be made in any order and on any thread.
class Transform {
 public:
  virtual ~Transform() = default;
  /// Changes what is known of the fields as `apply` will change the fields; throws LayerError where it does not fit.
  virtual void describe(DatasetInfo& info) const = 0;
  /// Draws from `draws` alone, each sample from its own stream, and makes of a sample what it would in any other
  /// company: batches then do not depend on the batch size or the ranks.
  virtual void apply(Batch& batch, const SampleDraws& draws) const = 0;

  /// Whether each sample is changed together with the one before it in the epoch's order, which may belong to another
  /// batch or rank; then `apply_to_pairs` is called instead of `apply`.
  virtual bool pairs() const { return false; }
  /// `before` holds, row by row, the samples before those of `batch`, as they reach this transform; before an epoch's
  /// first sample comes its last.
  virtual void apply_to_pairs(Batch& batch, const Batch& before, const SampleDraws& draws) const;

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
