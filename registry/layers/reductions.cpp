#include <ATen/ops/max.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/min.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/sum.h>

#include "registry/kinds/layer.h"
#include "registry/layers/onnx_parts.h"

namespace trainrun {
namespace {

using Dims = std::variant<int64_t, std::vector<int64_t>>;
using Reduce = at::Tensor (*)(const at::Tensor&, at::IntArrayRef, bool);

at::Tensor mean(const at::Tensor& x, at::IntArrayRef dims, bool keepdim) { return at::mean(x, dims, keepdim); }
at::Tensor sum(const at::Tensor& x, at::IntArrayRef dims, bool keepdim) { return at::sum(x, dims, keepdim); }

/// torch.mean, torch.sum.
template <Reduce kReduce, OperatorName kOperator>
struct Reduction {
  Dims dim;
  bool keepdim = false;
  static void describe(Fields<Reduction>& f) {
    f.required("dim", &Reduction::dim).doc("the dimension that is removed, or a list of them; 0 is the batch");
    f.optional("keepdim", &Reduction::keepdim).doc("keep the dimensions, with size 1");
  }
  void check(Checker& checker) const {
    const auto* list = std::get_if<std::vector<int64_t>>(&dim);
    if (list && list->empty()) checker.fail("dim", "needs at least one dimension");
  }
  Layer build(const LayerInputs& in) const {
    in.require_inputs(1, 1);
    return layer_of_function(
        [dims = dims(), keepdim = keepdim](const at::Tensor& x) { return kReduce(x, dims, keepdim); });
  }
  void onnx(OnnxForm& form) const {
    form.give(onnx_reduce(form, kOperator.text, onnx_promoted(form, 0), dims(), keepdim));
  }

 private:
  std::vector<int64_t> dims() const {
    const auto* one = std::get_if<int64_t>(&dim);
    return one ? std::vector<int64_t>{*one} : std::get<1>(dim);
  }
};

/// torch.max, torch.min: along a dimension of one input, or of several inputs element by element.
template <bool kMax>
struct Extremum {
  std::optional<int64_t> dim;
  bool keepdim = false;
  static void describe(Fields<Extremum>& f) {
    f.optional("dim", &Extremum::dim)
        .doc(
            "the dimension that is removed; 0 is the batch. Without it there are several inputs, which are compared "
            "element by element");
    f.optional("keepdim", &Extremum::keepdim).doc("keep the dimension, with size 1");
  }
  Layer build(const LayerInputs& in) const {
    if (!dim && in.num_own() < 2) throw LayerError("it needs dim, the dimension that is removed, or 2 or more inputs");
    if (dim) in.require_inputs(1, 1);
    return {nullptr,
            [*this](const Tensors& inputs) -> Tensors { return dim ? along(inputs[0]) : elementwise(inputs); }};
  }
  void onnx(OnnxForm& form) const {
    if (dim) {
      form.give(onnx_reduce(form, kMax ? "ReduceMax" : "ReduceMin", form.input(), {*dim}, keepdim));
      return form.give(
          form.op(kMax ? "ArgMax" : "ArgMin", {form.input()}, {{"axis", *dim}, {"keepdims", keepdim ? 1 : 0}}));
    }
    OnnxValues all;
    for (size_t i = 0; i < form.num_inputs(); ++i) all.push_back(onnx_promoted(form, i));
    form.give(form.op(kMax ? "Max" : "Min", all));
  }

 private:
  Tensors along(const at::Tensor& x) const {
    auto [values, indices] = kMax ? at::max(x, *dim, keepdim) : at::min(x, *dim, keepdim);
    return {values, indices};
  }
  static Tensors elementwise(const Tensors& inputs) {
    at::Tensor result = inputs[0];
    for (size_t i = 1; i < inputs.size(); ++i) {
      result = kMax ? at::maximum(result, inputs[i]) : at::minimum(result, inputs[i]);
    }
    return {result};
  }
};

}  // namespace

void add_reductions(LayerRegistry& layers) {
  layers.add<Reduction<mean, "ReduceMean">>("Mean", "the mean along dimensions");
  layers.add<Reduction<sum, "ReduceSum">>("Sum", "the sum along dimensions");
  layers.add<Extremum<true>>("Max",
                             "the largest along a dimension; outputs: the values, their indices in it; or the largest "
                             "of several inputs, element by element, broadcast");
  layers.add<Extremum<false>>("Min",
                              "the smallest along a dimension; outputs: the values, their indices in it; or the "
                              "smallest of several inputs, element by element, broadcast");
}

}  // namespace trainrun
