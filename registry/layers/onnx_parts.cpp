#include "registry/layers/onnx_parts.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <numeric>

namespace trainrun {

OnnxValue onnx_norm(OnnxForm& form, const OnnxValue& x, double p, int64_t dim, bool keepdim) {
  if (p == 2) return onnx_reduce(form, "ReduceL2", x, {dim}, keepdim);
  const OnnxValue lengths = form.op("Abs", {x});
  if (std::isinf(p)) return onnx_reduce(form, p > 0 ? "ReduceMax" : "ReduceMin", lengths, {dim}, keepdim);
  if (p == 0) return onnx_reduce(form, "ReduceSum", form.op("Sign", {lengths}), {dim}, keepdim);
  const OnnxValue sum = onnx_reduce(form, "ReduceSum", onnx_with(form, "Pow", lengths, p), {dim}, keepdim);
  return onnx_with(form, "Pow", sum, 1 / p);
}

OnnxValue onnx_scale(OnnxForm& form, const std::string& name, at::IntArrayRef sizes, double otherwise) {
  return form.has(name) ? form.state(name) : form.constant(at::full(sizes, otherwise));
}

OnnxValue onnx_channels_scaled(OnnxForm& form, OnnxValue x) {
  std::vector<int64_t> shape(static_cast<size_t>(form.rank() - 1), 1);
  shape[0] = -1;
  if (form.has("weight")) x = form.op("Mul", {x, form.reshape(form.state("weight"), shape)});
  if (form.has("bias")) x = form.op("Add", {x, form.reshape(form.state("bias"), shape)});
  return x;
}

OnnxValue onnx_normalized(OnnxForm& form, const OnnxValue& x, const std::vector<int64_t>& dims, double eps) {
  const OnnxValue centred = form.op("Sub", {x, onnx_reduce(form, "ReduceMean", x, dims, true)});
  const OnnxValue variance = onnx_reduce(form, "ReduceMean", form.op("Mul", {centred, centred}), dims, true);
  return form.op("Div", {centred, form.op("Sqrt", {onnx_with(form, "Add", variance, eps)})});
}

OnnxValue onnx_promoted(OnnxForm& form, size_t i) {
  return form.dtype(i) == form.output_dtype() ? form.input(i) : form.cast(form.input(i), form.output_dtype());
}

OnnxValue onnx_joined(OnnxForm& form, int64_t dim, bool is_new) {
  OnnxValues parts;
  for (size_t i = 0; i < form.num_inputs(); ++i) {
    const OnnxValue part = onnx_promoted(form, i);
    parts.push_back(is_new ? form.op("Unsqueeze", {part, form.ints({dim})}) : part);
  }
  return form.op("Concat", parts, {{"axis", dim}});
}

OnnxValue onnx_sum(OnnxForm& form) {
  OnnxValue sum = onnx_promoted(form, 0);
  for (size_t i = 1; i < form.num_inputs(); ++i) sum = form.op("Add", {sum, onnx_promoted(form, i)});
  return sum;
}

OnnxValue onnx_range(OnnxForm& form, const OnnxValue& x, int64_t dim) {
  const OnnxValue size = form.op("Squeeze", {form.sizes(x, dim, dim + 1)});
  return form.op("Range", {form.number(0, at::kLong), size, form.number(1, at::kLong)});
}

OnnxValue onnx_linear(OnnxForm& form, const OnnxValue& x, const OnnxValue& weight, const OnnxValue& bias) {
  const OnnxValue product = form.op("MatMul", {x, form.transpose(weight, {1, 0})});
  return bias.name.empty() ? product : form.op("Add", {product, bias});
}

OnnxValue onnx_padded(OnnxForm& form, const OnnxValue& x, const std::vector<int64_t>& pads, const std::string& mode,
                      double value) {
  std::vector<int64_t> axes(pads.size() / 2);
  std::iota(axes.begin(), axes.end(), int64_t{2});
  if (mode == "constant") {
    return form.op("Pad", {x, form.ints(pads), form.number(value), form.ints(axes)}, {{"mode", "constant"}});
  }
  const bool cuts = std::any_of(pads.begin(), pads.end(), [](int64_t pad) { return pad < 0; });
  OnnxValue whole = x;
  std::vector<int64_t> added = pads;
  if (cuts) {  // what is cut off is cut off first, as PyTorch's reflection and repetition begin at what is left
    std::vector<int64_t> cut = pads;
    for (size_t i = 0; i < pads.size(); ++i) {
      cut[i] = std::min<int64_t>(pads[i], 0);
      added[i] = std::max<int64_t>(pads[i], 0);
    }
    whole = form.op("Pad", {x, form.ints(cut), form.number(0), form.ints(axes)}, {{"mode", "constant"}});
  }
  const char* name = mode == "reflect" ? "reflect" : mode == "replicate" ? "edge" : "wrap";
  return form.op("Pad", {whole, form.ints(added), {}, form.ints(axes)}, {{"mode", name}});
}

namespace {

/// [in, out]: what the mean over windows multiplies by.
at::Tensor window_means(int64_t in, int64_t out) {
  const at::Tensor means = at::zeros({in, out});
  for (int64_t i = 0; i < out; ++i) {
    const int64_t begin = i * in / out;
    const int64_t end = ((i + 1) * in + out - 1) / out;
    means.slice(0, begin, end).select(1, i).fill_(1 / static_cast<double>(end - begin));
  }
  return means;
}

}  // namespace

OnnxValue onnx_adaptive_mean(OnnxForm& form, const std::vector<int64_t>& sizes) {
  OnnxValue x = form.input();
  std::vector<int64_t> whole;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 1) whole.push_back(static_cast<int64_t>(i) + 2);
  }
  if (!whole.empty()) x = onnx_reduce(form, "ReduceMean", x, whole, true);
  const int64_t last = form.rank() - 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] <= 1) continue;
    const int64_t dim = static_cast<int64_t>(i) + 2;
    const int64_t in = form.fixed_size(dim);
    if (in == sizes[i]) continue;
    std::vector<int64_t> order(static_cast<size_t>(form.rank()));
    std::iota(order.begin(), order.end(), int64_t{0});
    std::swap(order[static_cast<size_t>(dim)], order.back());
    if (dim != last) x = form.transpose(x, order);
    x = form.op("MatMul", {x, form.constant(window_means(in, sizes[i]))});
    if (dim != last) x = form.transpose(x, order);
  }
  return x;
}

}  // namespace trainrun
