#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "runner/data/batch_stream.h"

namespace trainrun {

/// `batch` in page-locked memory, from which a GPU fetches it while the processor goes on.
Batch pinned(const Batch& batch);

/// The batches of `source` on the GPU `device`, `finish`ed there: while one is worked on, the next is under way, on a
/// stream of its own.
std::unique_ptr<BatchStream> batches_on(at::Device device, std::unique_ptr<BatchStream> source,
                                        std::function<void(Batch&)> finish);

/// All samples of `dataset`, as `transforms` leave them, in the memory of the GPU `device`: the rows of one batch, by
/// number. Nothing where they would take more than half of what is free there, or more than kMostKept; where a
/// transform draws random numbers, so that a sample is not the same each time; or where a sample's shape depends on the
/// batch it is in.
std::optional<Batch> samples_on(at::Device device, const Dataset& dataset, const BatchTransforms& transforms);
constexpr int64_t kMostKept = int64_t{4} << 30;  // bytes; reading so much before the first step takes seconds

/// The same, for any device: at most `limit` bytes.
std::optional<Batch> samples_within(int64_t limit, at::Device device, const Dataset& dataset,
                                    const BatchTransforms& transforms);

/// The samples at `indices` ([N] int64, where `samples` are).
Batch rows_of(const Batch& samples, const at::Tensor& indices);

}  // namespace trainrun
