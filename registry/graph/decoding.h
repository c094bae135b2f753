#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "registry/graph/graph.h"
#include "registry/graph/operation.h"
#include "registry/graph/plan.h"

// Running a model of sequences [N, T, …] over the tokens that come next alone: what attention needs of those before is
// kept, layer by layer (a key-value cache).

namespace trainrun {

/// Why the model cannot be run so, or nothing: the first layer that neither is a DecodingOperation nor says that it
/// treats each position by itself. "model.layers[3]: Conv1d".
std::optional<std::string> undecodable_layer(const Graph& graph, const Plan& plan);

/// How many positions the model has for a text, where its layers limit them.
std::optional<int64_t> most_positions(const Graph& graph);

/// One decoding: a batch of texts that grow. Decodings of one plan know nothing of each other, and each may be run on a
/// thread of its own. The plan must outlive it, and `undecodable_layer` have nothing against it.
class Decoding {
 public:
  explicit Decoding(const Plan& plan, at::Tensor padding = {}) : plan_(plan) { point_.padding = std::move(padding); }

  /// The model's outputs for `length` more tokens of each row, whose fields are the `inputs`. Throws ComponentError.
  Tensors run(const Tensors& inputs, int64_t length);
  const DecodingPoint& point() const { return point_; }

 private:
  Tensors run_steps(const Plan& plan, const Tensors& inputs);

  const Plan& plan_;
  DecodingPoint point_;
  std::vector<Tensors> memories_;  // of the DecodingOperations, in the order of the steps
  size_t next_memory_ = 0;
};

}  // namespace trainrun
