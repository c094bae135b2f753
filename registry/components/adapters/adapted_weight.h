#pragma once

#include "registry/kinds/adapter.h"

namespace trainrun {

/// The weight of a layer that multiplies its input by a matrix, or looks up rows of one.
struct AdaptedWeight {
  /// Throws LayerError where `in` is another layer; `adapter` is the component's name.
  AdaptedWeight(const AdapterInputs& in, const std::string& adapter, bool allows_rows);

  std::string weight_name;     // the layer's parameters
  std::string bias_name;       //
  at::Tensor weight;           // as the layer has it
  at::Tensor bias;             // undefined if there is none
  bool is_transposed = false;  // [in, out]
  bool is_rows = false;        // [indices, out], which are looked up
  int64_t padding = -1;        // of rows: the index whose row gets no gradient; -1: none
  int64_t in_features = 0;     // of rows: how many there are
  int64_t out_features = 0;

  /// The weight of the same map as a Linear's [out, in]; no copy. Not for rows.
  at::Tensor as_linear() const { return is_transposed ? weight.t() : weight; }
  /// `matrix` [out, in] as the layer has its weight.
  at::Tensor as_own(const at::Tensor& matrix) const;
};

/// Of the operation that adds something to what `base`, which maps features, gives.
Operation::Traits traits_with_adapter(const Operation& base, bool is_random);

/// The tensor of that name among those that `in.folder` has for the layer; undefined if it is not there.
at::Tensor saved_tensor(const AdapterInputs& in, const std::string& name);

}  // namespace trainrun
