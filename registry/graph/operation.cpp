#include "registry/graph/operation.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/clamp_min.h>

namespace trainrun {

at::Tensor DecodingPoint::positions(int64_t length, at::Device device) const {
  const auto options = at::TensorOptions(at::kLong).device(device);
  const at::Tensor places = at::arange(past, past + length, options).unsqueeze(0);
  return padding.defined() ? at::clamp_min(places - padding.unsqueeze(1), 0) : places;
}

}  // namespace trainrun
