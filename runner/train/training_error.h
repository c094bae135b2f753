#pragma once

#include <cstdint>
#include <string>

#include "registry/language/error.h"

namespace trainrun {

/// Training cannot go on: a loss that is not a number, a layer that fails.
class TrainingError : public Error {
 public:
  using Error::Error;
};

/// The loss of step `step()`, or a weight after it, is not finite.
class NonFiniteNumbers : public TrainingError {
 public:
  /// `is_explained`: the message says where it comes from; else steps before it would have to be made again.
  NonFiniteNumbers(const std::string& message, int64_t step, bool is_explained)
      : TrainingError(message), step_(step), is_explained_(is_explained) {}
  int64_t step() const { return step_; }
  bool is_explained() const { return is_explained_; }

 private:
  int64_t step_;
  bool is_explained_;
};

}  // namespace trainrun
