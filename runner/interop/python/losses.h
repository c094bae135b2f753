#pragma once

#include <optional>
#include <string>

#include "runner/interop/python/source_file.h"
#include "runner/interop/python/wiring.h"

namespace trainrun::python {

/// The loss of a batch, as the program computes it.
struct LossForm {
  std::string call;  // "loss_of(output, batch[\"label\"])"
  /// Where it is the mean over the targets that count, and not over samples: how many those are in a batch.
  std::string count;
  bool is_sum = false;  // it adds up over batches
  /// Its samples cannot be put together over batches: an evaluation takes the mean over these.
  bool by_batch = false;
  bool without_dropout = false;  // layers draw nothing in training
};

/// Adds `loss_of` to the file, of the variables in `wiring.of_losses`.
LossForm write_loss(const Recipe& recipe, const Wiring& wiring, SourceFile& file);

}  // namespace trainrun::python
