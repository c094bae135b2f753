#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cosine_similarity.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/stack.h>

#include <functional>

#include "registry/layer.h"

namespace trainrun {
namespace {

using at::Tensor;
constexpr size_t kMany = 1 << 16;

Tensor add(const Tensor& a, const Tensor& b) { return a + b; }
Tensor subtract(const Tensor& a, const Tensor& b) { return a - b; }
Tensor multiply(const Tensor& a, const Tensor& b) { return a * b; }

/// The first input combined with the second, that with the third, and so on, up to `kMost` of them.
template <Tensor (*kCombine)(const Tensor&, const Tensor&), size_t kMost>
struct Fold {
  static void describe(Fields<Fold>&) {}
  Layer build(const LayerInputs& in) const {
    in.require_inputs(2, kMost);
    return {nullptr, [](const Tensors& inputs) -> Tensors {
              Tensor result = kCombine(inputs[0], inputs[1]);
              for (size_t i = 2; i < inputs.size(); ++i) result = kCombine(result, inputs[i]);
              return {result};
            }};
  }
};

struct Concat {
  int64_t dim = 1;
  static void describe(Fields<Concat>& f) {
    f.optional("dim", &Concat::dim).doc("the dimension that grows; 0 is the batch");
  }
  Layer build(const LayerInputs& in) const {
    in.require_inputs(2, kMany);
    return {nullptr, [dim = dim](const Tensors& inputs) -> Tensors { return {at::cat(inputs, dim)}; }};
  }
};

struct Stack {
  int64_t dim = 1;
  static void describe(Fields<Stack>& f) {
    f.optional("dim", &Stack::dim)
        .doc("the place of the new dimension, whose entries are the inputs; 0 is the batch's");
  }
  Layer build(const LayerInputs& in) const {
    in.require_inputs(2, kMany);
    return {nullptr, [dim = dim](const Tensors& inputs) -> Tensors { return {at::stack(inputs, dim)}; }};
  }
};

struct CosineSimilarity {
  int64_t dim = 1;
  double eps = 1e-8;
  static void describe(Fields<CosineSimilarity>& f) {
    f.optional("dim", &CosineSimilarity::dim).doc("the dimension that holds the vectors, and goes");
    f.optional("eps", &CosineSimilarity::eps).at_least(0).doc("lengths are at least so much");
  }
  Layer build(const LayerInputs& in) const {
    in.require_inputs(2, 2);
    return {nullptr, [own = *this](const Tensors& inputs) -> Tensors {
              return {at::cosine_similarity(inputs[0], inputs[1], own.dim, own.eps)};
            }};
  }
};

}  // namespace

void add_combinations(LayerRegistry& layers) {
  layers.add<Fold<add, kMany>>("Add", "the sum of its inputs, broadcast");
  layers.add<Fold<multiply, kMany>>("Mul", "the product of its inputs, element by element, broadcast");
  layers.add<Fold<subtract, 2>>("Sub", "its first input less its second, broadcast");
  layers.add<Fold<at::matmul, 2>>("MatMul", "matrix product of the last two dimensions of its two inputs");
  layers.add<Concat>("Concat", "its inputs one after the other along a dimension");
  layers.add<Stack>("Stack", "its inputs, all of one shape, along a new dimension");
  layers.add<CosineSimilarity>("CosineSimilarity", "cosine of the angle between the vectors of its two inputs");
}

}  // namespace trainrun
