#pragma once

#include <string>
#include <utility>

#include "registry/models/language_model.h"

namespace trainrun {

/// What a SentenceTransformer keeps about itself, as a child of its module, which has no tensors.
struct SentenceRecord : torch::nn::Module {
  static constexpr const char* kName = "(sentences)";
  SentenceRecord(std::string how, bool normalizes_) : pooling(std::move(how)), normalizes(normalizes_) {}

  std::string pooling;  // "mean", "cls" or "max"
  bool normalizes;
};

}  // namespace trainrun
