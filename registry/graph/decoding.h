#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "registry/graph/graph.h"
#include "registry/graph/operation.h"
#include "registry/graph/plan.h"

// Running a model of sequences [N, T, …] over the tokens that come next alone: what attention needs of those before is
// kept, layer by layer (a key-value cache).

namespace trainrun {

/// Where a decoding stands: what operations must know of the tokens that are not among their inputs.
struct DecodingPoint {
  int64_t past = 0;  // tokens that each row has had before, padding included
  /// [N] int64: how many tokens of padding each row has on its left; undefined: none has any.
  at::Tensor padding;

  /// The places of the next `length` tokens in their own texts, from 0: [N, length], or [1, length] without padding.
  /// Those of padding are 0.
  at::Tensor positions(int64_t length, at::Device device) const;
};

/// An operation over [N, T, …] that mixes positions, or knows their numbers, and can go on where it stopped: if the
/// first a tokens of a text were run, then the next b, it gives for these what `run` gives for them among all a + b.
class DecodingOperation : public Operation {
 public:
  /// `inputs`: of the tokens that come next. `memory`: what the operation keeps of those before; empty at first.
  virtual Tensors run_further(const Tensors& inputs, const DecodingPoint& point, Tensors& memory) const = 0;
};

/// A layer of such an operation: `function` is its `run`, `further` its `run_further`.
Layer decoding_layer(std::shared_ptr<torch::nn::Module> state, Layer::Function function,
                     std::function<Tensors(const Tensors&, const DecodingPoint&, Tensors&)> further,
                     const Operation::Traits& traits = {});

/// Why the model cannot be run so, or nothing: the first layer that mixes positions and is not a DecodingOperation, or
/// of which it is not known that it treats each by itself. "model.layers[3]: Conv1d".
std::optional<std::string> undecodable_layer(const Graph& graph, const Plan& plan);

/// How many positions the model has for a text, where its layers limit them: those of PositionalEncoding, PositionIds.
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
