#pragma once

#include <ATen/ops/arange.h>

#include <algorithm>
#include <cstdint>

#include "registry/kinds/dataset.h"
#include "tests/doctest.h"

namespace trainrun::test {

/// All samples.
inline Batch all_of(const Dataset& data) { return data.get(at::arange(data.size(), at::kLong)); }

/// Does `info()` say what `get` gives?
inline void check_info(const Dataset& data) {
  const DatasetInfo info = data.info();
  const Batch batch = data.get(at::arange(std::min<int64_t>(data.size(), 3), at::kLong));
  REQUIRE(batch.fields().size() == info.fields.size());
  for (size_t i = 0; i < info.fields.size(); ++i) {
    const at::Tensor& tensor = batch.fields()[i].tensor;
    CHECK(batch.fields()[i].name == info.fields[i].name);
    const bool is_wide = tensor.scalar_type() == at::kDouble;  // until transforms have scaled it
    CHECK(((is_wide ? at::kFloat : tensor.scalar_type()) == info.fields[i].dtype));
    CHECK(tensor.sizes().slice(1) == at::IntArrayRef(info.fields[i].shape));
    CHECK(tensor.size(0) == std::min<int64_t>(data.size(), 3));
  }
  CHECK(info.find(info.target));
  if (info.num_samples) CHECK(*info.num_samples == data.size());
}

}  // namespace trainrun::test
