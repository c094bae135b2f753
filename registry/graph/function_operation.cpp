#include "registry/graph/function_operation.h"

#include <memory>

namespace trainrun {

std::shared_ptr<const Operation> operation_of(std::function<Tensors(const Tensors&)> function,
                                              const Operation::Traits& traits) {
  return std::make_shared<FunctionOperation>(std::move(function), traits);
}

}  // namespace trainrun
