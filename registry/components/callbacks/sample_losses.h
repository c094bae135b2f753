#pragma once

#include "registry/kinds/snapshot.h"

namespace trainrun {

/// The account of the losses of single samples that a run keeps for a callback.
class SampleLossBook {
 public:
  virtual ~SampleLossBook() = default;
  /// A step is done, and what its batches gave counts.
  virtual void keep_step() = 0;
  /// Training is over; the epoch may not be.
  virtual void keep_all() = 0;
  /// Of the epoch that is not over. Every rank calls it.
  virtual void save(Snapshot& snapshot) const = 0;
  virtual void load(const Snapshot& snapshot) = 0;
};

/// A callback that has the run keep one.
class KeepsSampleLosses {
 public:
  virtual ~KeepsSampleLosses() = default;
  /// Before the training begins; `book` lives as long as the callback.
  virtual void use(SampleLossBook& book) = 0;
};

}  // namespace trainrun
