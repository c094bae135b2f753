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

/// `loss`.backward(), of `batch`. What LibTorch finds wrong becomes a TrainingError. Where this process is alone, it
/// names the layer whose gradient could not be computed: to find it, the passes are made once more with a note at every
/// layer. What is wrong with the connection to other ranks is passed on as the group says it.
void run_backward(Job& job, const Batch& batch, const at::Tensor& loss, const Occasion& occasion);

/// Its part for a rank among others, which a lost connection must be told apart from.
void run_backward_of_rank(const at::Tensor& loss, const Occasion& occasion);

}  // namespace trainrun
