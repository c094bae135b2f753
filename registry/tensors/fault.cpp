#include "registry/tensors/fault.h"

#include "registry/tensors/component_error.h"
#include "registry/tensors/out_of_memory.h"

namespace trainrun {

void throw_fault(const Place& place, const std::string& path, const std::string& what, const std::exception& error) {
  if (dynamic_cast<const RecipeError*>(&error) || dynamic_cast<const OutOfMemory*>(&error)) throw;
  rethrow_out_of_memory(error, place.to_string() + ": " + path);
  throw RecipeError({{place, path, what + error_text(error)}});
}

}  // namespace trainrun
