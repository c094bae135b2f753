#pragma once

#include <algorithm>

#include "registry/graph/onnx_form.h"

// What the ONNX forms of several families have in common.

namespace trainrun {

/// The name of an operator, as a template's argument.
template <size_t kSize>
struct OperatorName {
  char text[kSize];
  constexpr OperatorName(const char (&name)[kSize]) {  // NOLINT(google-explicit-constructor): `onnx_op<"Relu">`
    std::copy_n(name, kSize, text);
  }
};

/// A function of one value.
using OnnxUnary = OnnxValue (*)(OnnxForm& form, const OnnxValue& x);
/// The operator of that name.
template <OperatorName kName>
OnnxValue onnx_op(OnnxForm& form, const OnnxValue& x) {
  return form.op(kName.text, {x});
}

/// `x` and a number: {"Add", x, 1}.
inline OnnxValue onnx_with(OnnxForm& form, const char* type, const OnnxValue& x, double number) {
  return form.op(type, {x, form.number(number)});
}
inline OnnxValue onnx_clamp(OnnxForm& form, const OnnxValue& x, double least, double most) {
  return form.op("Clip", {x, form.number(least), form.number(most)});
}
/// x · σ(x).
inline OnnxValue onnx_silu(OnnxForm& form, const OnnxValue& x) { return form.op("Mul", {x, form.op("Sigmoid", {x})}); }

/// ReduceSum, ReduceMean, ReduceMax, … over dimensions.
inline OnnxValue onnx_reduce(OnnxForm& form, const char* type, const OnnxValue& x, const std::vector<int64_t>& dims,
                             bool keepdim) {
  return form.op(type, {x, form.ints(dims)}, {{"keepdims", keepdim ? 1 : 0}});
}
/// The p-norm along dimensions.
OnnxValue onnx_norm(OnnxForm& form, const OnnxValue& x, double p, int64_t dim, bool keepdim);

/// All inputs one after the other along a dimension; `is_new`: one that they do not have. As what the output is.
OnnxValue onnx_joined(OnnxForm& form, int64_t dim, bool is_new);
/// The sum of all inputs, as what the output is.
OnnxValue onnx_sum(OnnxForm& form);
/// Input `i`, cast to what the output is.
OnnxValue onnx_promoted(OnnxForm& form, size_t i);

/// 0, 1, … to before the size of a dimension: [size] int64.
OnnxValue onnx_range(OnnxForm& form, const OnnxValue& x, int64_t dim);

/// `x` times the transposed parameter `weight`, [out, in], plus `bias` if the layer has it: x [N, …, in].
OnnxValue onnx_linear(OnnxForm& form, const OnnxValue& x, const OnnxValue& weight, const OnnxValue& bias);
/// The layer's parameter of that name, or as many numbers `otherwise`.
OnnxValue onnx_scale(OnnxForm& form, const std::string& name, at::IntArrayRef sizes, double otherwise);
/// x · weight + bias, with those of them that the layer has, one for each channel in dimension 1.
OnnxValue onnx_channels_scaled(OnnxForm& form, OnnxValue x);
/// Over these dimensions: (x - mean) / sqrt(variance + eps).
OnnxValue onnx_normalized(OnnxForm& form, const OnnxValue& x, const std::vector<int64_t>& dims, double eps);
/// The parameter of that name, or no value.
inline OnnxValue onnx_state_or_none(OnnxForm& form, const std::string& name) {
  return form.has(name) ? form.state(name) : OnnxValue();
}

/// `x` [N, C, …] with points added at its borders (`pads`: before each dimension behind the channels, then after each) as
/// torch.nn.functional.pad's `mode` says; a negative number cuts off.
OnnxValue onnx_padded(OnnxForm& form, const OnnxValue& x, const std::vector<int64_t>& pads, const std::string& mode,
                      double value);

/// The mean over windows chosen so that `x` [N, C, …], which is the layer's input, gets these sizes behind the channels;
/// 0 keeps what is there.
OnnxValue onnx_adaptive_mean(OnnxForm& form, const std::vector<int64_t>& sizes);

}  // namespace trainrun
