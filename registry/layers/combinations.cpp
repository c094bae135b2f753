#include <ATen/ops/cat.h>
#include <ATen/ops/cosine_similarity.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/pairwise_distance.h>
#include <ATen/ops/stack.h>

#include "registry/kinds/layer.h"
#include "registry/layers/onnx_parts.h"

namespace trainrun {
namespace {

using at::Tensor;
constexpr size_t kMany = 1 << 16;

struct MatMul {
  static void describe(Fields<MatMul>&) {}
  Layer build(const LayerInputs& in) const {
    in.require_inputs(2, 2);
    return {nullptr, [](const Tensors& inputs) -> Tensors { return {at::matmul(inputs[0], inputs[1])}; }, kComputed};
  }
  void onnx(OnnxForm& form) const { form.give(form.op("MatMul", {form.input(0), form.input(1)})); }
};

struct Concat {
  int64_t dim = 1;
  static void describe(Fields<Concat>& f) {
    f.optional("dim", &Concat::dim).doc("the dimension that grows; 0 is the batch");
  }
  Layer build(const LayerInputs& in) const {
    in.require_inputs(2, kMany);
    return {nullptr, [dim = dim](const Tensors& inputs) -> Tensors { return {at::cat(inputs, dim)}; },
            in.traits_along(dim)};
  }
  void onnx(OnnxForm& form) const { form.give(onnx_joined(form, dim, false)); }
};

struct Stack {
  int64_t dim = 1;
  static void describe(Fields<Stack>& f) {
    f.optional("dim", &Stack::dim)
        .doc("index of the new dimension, along which the inputs are stacked; 0 is the batch");
  }
  Layer build(const LayerInputs& in) const {
    in.require_inputs(2, kMany);
    return {nullptr, [dim = dim](const Tensors& inputs) -> Tensors { return {at::stack(inputs, dim)}; }, kComputed};
  }
  void onnx(OnnxForm& form) const { form.give(onnx_joined(form, dim, true)); }
};

struct CosineSimilarity {
  int64_t dim = 1;
  double eps = 1e-8;
  static void describe(Fields<CosineSimilarity>& f) {
    f.optional("dim", &CosineSimilarity::dim).doc("the dimension that holds the vectors, which is removed");
    f.optional("eps", &CosineSimilarity::eps).at_least(0).doc("the smallest length used for a vector");
  }
  Layer build(const LayerInputs& in) const {
    in.require_inputs(2, 2);
    return {nullptr, [own = *this](const Tensors& inputs) -> Tensors {
              return {at::cosine_similarity(inputs[0], inputs[1], own.dim, own.eps)};
            }};
  }
  void onnx(OnnxForm& form) const {
    const auto direction = [&](const OnnxValue& x) {
      const OnnxValue length = form.op("Max", {onnx_norm(form, x, 2, dim, true), form.number(eps)});
      return form.op("Div", {x, length});
    };
    const OnnxValue products = form.op("Mul", {direction(form.input(0)), direction(form.input(1))});
    form.give(onnx_reduce(form, "ReduceSum", products, {dim}, false));
  }
};

/// torch.nn.PairwiseDistance.
struct PairwiseDistance {
  double p = 2;
  double eps = 1e-6;
  bool keepdim = false;
  static void describe(Fields<PairwiseDistance>& f) {
    f.optional("p", &PairwiseDistance::p).doc("the norm: (sum of |x - y|^p)^(1/p)");
    f.optional("eps", &PairwiseDistance::eps).doc("added to each difference");
    f.optional("keepdim", &PairwiseDistance::keepdim).doc("keep the last dimension, with size 1");
  }
  Layer build(const LayerInputs& in) const {
    in.require_inputs(2, 2);
    return {nullptr, [own = *this](const Tensors& inputs) -> Tensors {
              return {at::pairwise_distance(inputs[0], inputs[1], own.p, own.eps, own.keepdim)};
            }};
  }
  void onnx(OnnxForm& form) const {
    const OnnxValue difference = form.op("Sub", {form.input(0), form.input(1)});
    form.give(onnx_norm(form, onnx_with(form, "Add", difference, eps), p, -1, keepdim));
  }
};

}  // namespace

void add_combinations(LayerRegistry& layers) {
  layers.add<MatMul>("MatMul", "matrix product of the last two dimensions of its two inputs");
  layers.add<Concat>("Concat", "its inputs one after the other along a dimension");
  layers.add<Stack>("Stack", "its inputs, all of the same shape, along a new dimension");
  layers.add<CosineSimilarity>("CosineSimilarity", "cosine of the angle between the vectors of its two inputs");
  layers.add<PairwiseDistance>("PairwiseDistance",
                               "distance between the vectors along the last dimension of its two inputs");
}

}  // namespace trainrun
