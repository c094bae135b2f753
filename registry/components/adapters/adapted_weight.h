#pragma once

#include "registry/kinds/adapter.h"

namespace trainrun {

/// The weight of a layer that multiplies its input by a matrix, or looks up rows of one.
struct AdaptedWeight {
  /// Throws LayerError where `in` is another layer; `adapter` is the component's name.
  AdaptedWeight(const AdapterInputs& in, const std::string& adapter, bool allows_embedding);

  at::Tensor weight;           // as the layer has it
  at::Tensor bias;             // undefined if there is none
  bool is_transposed = false;  // [in, out]
  bool is_embedding = false;   // [num_embeddings, embedding_dim]
  int64_t in_features = 0;     // of an embedding: num_embeddings
  int64_t out_features = 0;

  /// The weight of the same map as a Linear's [out, in]; no copy. Not for an embedding.
  at::Tensor as_linear() const { return is_transposed ? weight.t() : weight; }
  /// `matrix` [out, in] as the layer has its weight.
  at::Tensor as_own(const at::Tensor& matrix) const;
};

/// The tensor of that name among those that `in.folder` has for the layer; undefined if it is not there.
at::Tensor saved_tensor(const AdapterInputs& in, const std::string& name);

}  // namespace trainrun
