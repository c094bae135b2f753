#pragma once

#include <nlohmann/json.hpp>

#include <functional>
#include <memory>
#include <optional>

#include "registry/kinds/batch.h"
#include "registry/kinds/sample_draws.h"
#include "registry/language/registry.h"

namespace trainrun {

/// What a transform does to the values of a field, beside the places that it moves them to.
enum class Values {
  kChanged,    // anything
  kMoved,      // nothing: they are moved within their sample, and zeros added
  kScaled,     // each is multiplied alike, drawing nothing: zero stays zero
  kPointwise,  // each is changed by itself, drawing nothing
};

/// Changes whole batches. No batch changes its state, so batches can be made in any order and on any thread.
class Transform {
 public:
  virtual ~Transform() = default;
  /// Changes the description of the fields as `apply` will change the fields. Throws LayerError if they do not fit.
  virtual void describe(DatasetInfo& info) const = 0;
  /// Changes the batch. Draws random numbers from `draws` alone, for each sample from its own stream, and treats a
  /// sample alike whichever others are in its batch, so that the result does not depend on the batch size or the ranks.
  virtual void apply(Batch& batch, const SampleDraws& draws) const = 0;

  /// What keeps pixels bytes for as long as can be: they are scaled to float32 after the transforms that only move them,
  /// and, for a GPU, there, as are the pointwise ones that come last.
  virtual Values values() const { return Values::kChanged; }

  /// Whether each sample is changed together with the one before it in the epoch's order, which may belong to another
  /// batch or rank; then `apply_to_pairs` is called instead of `apply`.
  virtual bool pairs() const { return false; }
  /// `before` holds, row by row, the samples before those of `batch`, as they reach this transform; the sample before
  /// an epoch's first one is its last.
  virtual void apply_to_pairs(Batch& batch, const Batch& before, const SampleDraws& draws) const;

  /// Whether it must see the training samples before it can be applied.
  virtual bool learns() const { return false; }
  /// `next` returns the training samples, batch by batch in the data set's order, as they reach this transform.
  virtual void learn(const std::function<std::optional<Batch>()>& next);
  /// What was learnt, as checkpoints keep it; null for nothing.
  virtual nlohmann::json learnt() const;
  /// Called instead of `learn`. Throws DataError if `state` is of other samples.
  virtual void set_learnt(const nlohmann::json& state);
};

struct TransformInputs {
  /// The fields as they reach the transform. Empty if only `describe` will be called.
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
