#include "registry/layers/onnx_attention.h"

#include "registry/layers/onnx_parts.h"

namespace trainrun {

OnnxValue onnx_heads(OnnxForm& form, const OnnxValue& x, int64_t num_heads) {
  return form.transpose(form.reshape(x, {0, 0, num_heads, -1}), {0, 2, 1, 3});
}

OnnxValue onnx_joined_heads(OnnxForm& form, const OnnxValue& x) {
  return form.reshape(form.transpose(x, {0, 2, 1, 3}), {0, 0, -1});
}

namespace {

/// [N, key heads, S, D], each head `times` times: [N, heads, S, D].
OnnxValue repeated(OnnxForm& form, const OnnxValue& x, int64_t times) {
  if (times == 1) return x;
  const OnnxValue apart = form.op("Unsqueeze", {x, form.ints({2})});
  const OnnxValue copies = form.op("Expand", {apart, form.ints({1, 1, times, 1, 1})});
  const OnnxValue sizes = form.op("Concat", {form.sizes(x, 0, 1), form.ints({-1}), form.sizes(x, 2, 4)}, {{"axis", 0}});
  return form.op("Reshape", {copies, sizes});
}

}  // namespace

OnnxValue onnx_attended(OnnxForm& form, const OnnxAttention& attention) {
  const OnnxValue keys = form.transpose(repeated(form, attention.key, attention.repeats), {0, 1, 3, 2});
  OnnxValue scores = form.op("MatMul", {onnx_with(form, "Mul", attention.query, attention.scale), keys});
  if (!attention.mask.name.empty()) scores = form.op("Add", {scores, attention.mask});
  const OnnxValue weights = form.op("Softmax", {scores}, {{"axis", -1}});
  return form.op("MatMul", {weights, repeated(form, attention.value, attention.repeats)});
}

OnnxValue onnx_seen(OnnxForm& form, const OnnxValue& mask, at::ScalarType dtype) {
  return dtype == at::kBool ? form.op("Not", {mask}) : form.cast(mask, at::kBool);
}

OnnxValue onnx_causal(OnnxForm& form, const OnnxValue& queries, const OnnxValue& keys, int64_t time,
                      const std::optional<int64_t>& window) {
  const OnnxValue rows = form.op("Unsqueeze", {onnx_range(form, queries, time), form.ints({1})});
  const OnnxValue columns = onnx_range(form, keys, time);
  OnnxValue before = form.op("GreaterOrEqual", {rows, columns});
  if (!window) return before;
  const OnnxValue first = form.op("Sub", {rows, form.number(static_cast<double>(*window), at::kLong)});
  return form.op("And", {before, form.op("Greater", {columns, first})});
}

}  // namespace trainrun
