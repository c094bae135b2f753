#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace trainrun {

/// Where random numbers are drawn while training on `device`.
std::vector<at::Device> random_sources(at::Device device);

/// Where the generator of `source` stands, as bytes, to go back to.
at::Tensor random_state(at::Device source);
void set_random_state(at::Device source, const at::Tensor& state);

}  // namespace trainrun
