#pragma once

#include <exception>
#include <string>

#include "runner/train/job.h"
#include "runner/train/occasion.h"

namespace trainrun {

/// Throws a TrainingError for `error`, which is being handled: it names the component that failed, or else `what`, and
/// the occasion. Other errors of ours pass: they say themselves where.
[[noreturn]] void throw_named(const std::string& what, const Occasion& occasion, const std::exception& error);

/// What `body` returns.
template <class Body>
auto named(const char* what, const Occasion& occasion, const Body& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    throw_named(what, occasion, error);
  }
}

/// `loss`.backward(), where this process is alone. What it throws becomes a ComponentError of the layer whose gradient
/// could not be computed: to find it, the passes are made once more with a note at every layer.
void run_backward(Job& job, const Batch& batch, const at::Tensor& loss);

/// `loss`.backward() beside other ranks. What LibTorch finds wrong on this rank becomes a TrainingError; what is wrong
/// with the connection is passed on as it is.
void run_backward_of_rank(const Occasion& occasion, const at::Tensor& loss);

}  // namespace trainrun
