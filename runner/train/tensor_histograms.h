#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "registry/tensors/named_tensors.h"
#include "runner/loggers/tensor_records.h"

namespace trainrun {

/// In buckets whose limits grow by a tenth, as TensorFlow's do: 1e-12, 1.1e-12, …, 1e20, and the same below 0. Numbers
/// that are not finite are in none.
Histogram histogram_of(const std::string& name, const at::Tensor& values);

/// Of each parameter: "weights/0.weight".
std::vector<Histogram> weight_histograms(const NamedTensors& parameters);

/// Of each parameter that has a gradient: "gradients/0.weight".
std::vector<Histogram> gradient_histograms(const NamedTensors& parameters);

}  // namespace trainrun
