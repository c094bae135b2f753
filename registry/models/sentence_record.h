#pragma once

#include <string>
#include <utility>

#include "registry/models/language_model.h"

namespace trainrun {

/// What a SentenceTransformer keeps about itself, as a child of its module, which has no tensors.
struct SentenceRecord : torch::nn::Module {
  static constexpr const char* kName = "(sentences)";
  SentenceRecord(std::string how, bool is_unit) : pooling(std::move(how)), normalizes(is_unit) {}

  std::string pooling;  // "mean", "cls" or "max"
  bool normalizes;
};

}  // namespace trainrun
