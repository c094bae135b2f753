#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace trainrun {

using Tensors = std::vector<at::Tensor>;

/// What a layer computes from its inputs; a Plan runs it as one step.
class Operation {
 public:
  /// What code that rearranges steps, decodes or captures must know. The layer says it where it is built.
  struct Traits {
    // What may happen: true if it holds for some inputs, or only while training.
    bool in_place = false;     // it changes its inputs
    bool view = false;         // its outputs share memory with its inputs, or with tensors that it keeps
    bool random = false;       // it draws random numbers
    bool spans_ranks = false;  // it communicates: ranks wait for each other
    // What can be relied on: true only if it holds for all inputs of as many dimensions as those that it was built for.
    /// Each element of its outputs follows from the elements of its inputs at that place alone, everywhere by one rule;
    /// inputs are broadcast.
    bool pointwise = false;
    /// Of inputs [N, T, …], random draws aside: what it gives for a position follows from its inputs for that position
    /// alone, everywhere by one rule. It may then run over some positions only. True of what is pointwise.
    bool position_wise = false;
    /// On a GPU it never waits for results and takes no memory but the allocator's: a CUDA graph can record it.
    bool capturable = false;
    /// With floating-point inputs and weights in bfloat16 it computes outputs in bfloat16, as exactly as those allow.
    bool half_precision = false;
    /// The longest sequences [N, T, …] that it takes; empty: any.
    std::optional<int64_t> max_length = std::nullopt;
  };

  virtual ~Operation() = default;
  /// Returns one or more outputs; the next layer reads the first.
  virtual Tensors run(const Tensors& inputs) const = 0;
  virtual Traits traits() const { return {}; }
};

/// Of a function of single elements that ATen computes.
inline constexpr Operation::Traits kPointwise = {
    .pointwise = true, .position_wise = true, .capturable = true, .half_precision = true};

/// Of other functions that ATen computes from tensors alone.
inline constexpr Operation::Traits kComputed = {.capturable = true, .half_precision = true};

/// An operation that calls `function`.
std::shared_ptr<const Operation> operation_of(std::function<Tensors(const Tensors&)> function,
                                              const Operation::Traits& traits = {});

/// Where a decoding stands: what operations must know of the tokens that are not among their inputs.
struct DecodingPoint {
  int64_t past = 0;  // tokens that each row has had before, padding included
  /// [N] int64: how many tokens of padding each row has on its left; undefined: none has any.
  at::Tensor padding;

  /// The places of the next `length` tokens in their own texts, from 0: [N, length], or [1, length] without padding.
  /// Those of padding are 0.
  at::Tensor positions(int64_t length, at::Device device) const;
};

/// An operation over [N, T, …] that mixes positions, or knows their numbers, and can continue where it stopped: if the
/// first a tokens of a text were run, then the next b, it gives for these what `run` gives for them among all a + b.
class DecodingOperation : public Operation {
 public:
  /// `inputs`: of the tokens that come next. `memory`: what the operation keeps of those before; empty at first.
  virtual Tensors run_further(const Tensors& inputs, const DecodingPoint& point, Tensors& memory) const = 0;
};

}  // namespace trainrun
