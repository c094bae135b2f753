#pragma once

#include <string>
#include <utility>

#include "registry/kinds/graph_of_parts.h"
#include "registry/kinds/layer.h"

namespace trainrun {

struct AttentionOptions;

/// `component`, which is registered as `type`, as a part of another layer. `examples`: of what flows into it.
template <class C>
Part part_of(const std::string& type, const C& component, Tensors examples) {
  LayerInputs inputs;
  inputs.examples = std::move(examples);
  return {type, Fields<C>().write(&component), component.build(inputs), OwnOptions::of(component)};
}

// Registered layers as parts of others; each is made in its family's file. Sizes follow from the example, `input`.

/// Keys and values have as many features as the query; those of `options` are ignored.
Part attention_part(const at::Tensor& query, const AttentionOptions& options, bool is_causal);
Part linear_part(const at::Tensor& input, int64_t out_features, bool bias);
Part layer_norm_part(const at::Tensor& input, double eps, bool bias);
Part dropout_part(const at::Tensor& input, double p);
Part relu_part(const at::Tensor& input);
Part gelu_part(const at::Tensor& input);
/// The sum of two tensors like `input`.
Part add_part(const at::Tensor& input);

}  // namespace trainrun
