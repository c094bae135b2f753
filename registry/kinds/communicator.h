#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>

namespace c10::ivalue {
struct Future;  // ATen/core/ivalue.h, for those who make or wait for one
}

namespace trainrun {

/// A tensor that is still being computed: `Future::value().toTensor()` once completed.
using FutureTensor = c10::intrusive_ptr<c10::ivalue::Future>;
/// A completed future that holds `tensor`.
FutureTensor finished(const at::Tensor& tensor);

/// The processes that train together, as components see them. Every rank must make the same calls in the same order.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t world_size() const = 0;
  /// Begins to replace `tensor` (contiguous) by its sum over ranks; the future completes with that tensor.
  virtual FutureTensor start_sum(const at::Tensor& tensor) = 0;
  /// Replaces `tensor` by its sum over ranks. Throws if a rank is lost.
  virtual void sum(const at::Tensor& tensor) = 0;
};

/// A layer that works on the batches of all ranks: SyncBatchNorm, and BatchNorm if the recipe sets `sync_batchnorm`.
class SpansRanks {
 public:
  virtual ~SpansRanks() = default;
  /// `sync_batchnorm`: what the recipe says. The communicator must live as long as the layer computes.
  virtual void span(Communicator& ranks, bool sync_batchnorm) = 0;
};

}  // namespace trainrun
