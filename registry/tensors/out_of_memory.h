#pragma once

#include <exception>
#include <string>

#include "registry/language/error.h"

namespace trainrun {

/// The machine has too little memory for what a recipe asks for; neither the recipe nor the data is at fault.
class OutOfMemory : public Error {
 public:
  using Error::Error;
};

/// Whether `error` says that memory could not be had: std::bad_alloc, or what LibTorch's allocators throw.
bool is_out_of_memory(const std::exception& error);
/// Throws OutOfMemory if that is what `error` says; `what` is what the memory was for: "model.layers[2] (Linear, …)".
void rethrow_out_of_memory(const std::exception& error, const std::string& what);

}  // namespace trainrun
