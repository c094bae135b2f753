#include "registry/data/sample_lengths.h"

#include <ATen/ops/empty.h>

#include "registry/kinds/dataset_facts.h"

namespace trainrun {

at::Tensor lengths_between(std::span<const int64_t> begins) {
  const at::Tensor lengths = at::empty({static_cast<int64_t>(begins.size()) - 1}, at::kLong);
  for (size_t i = 0; i + 1 < begins.size(); ++i) lengths.mutable_data_ptr<int64_t>()[i] = begins[i + 1] - begins[i];
  return lengths;
}

at::Tensor sample_lengths(const Dataset& data) {
  at::Tensor lengths = data.facts().lengths();
  if (!lengths.defined()) throw DataError("its samples have no lengths of their own");
  return lengths;
}

}  // namespace trainrun
