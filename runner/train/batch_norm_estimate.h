#pragma once

#include <functional>

#include "runner/data/batch_stream.h"
#include "runner/distributed/process_group.h"
#include "runner/model/model.h"

namespace trainrun {

/// Estimates what batch normalizations keep anew, as Run::estimate_batch_norms says, over what `batches` gives; `prepare`
/// is called with each batch.
void estimate_batch_norms(Model& model, BatchStream& batches, const std::function<void(Batch&)>& prepare,
                          ProcessGroup& group);

}  // namespace trainrun
