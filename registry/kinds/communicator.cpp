#include "registry/kinds/communicator.h"

#include <ATen/core/ivalue.h>

namespace trainrun {

FutureTensor finished(const at::Tensor& tensor) {
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get());
  future->markCompleted(tensor);
  return future;
}

}  // namespace trainrun
