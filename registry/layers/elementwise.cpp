#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/log.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/sqrt.h>

#include <cmath>

#include "registry/layers/onnx_parts.h"
#include "registry/layers/parts.h"

// torch's functions of one tensor, or of several element by element, as layers.

namespace trainrun {
namespace {

using at::Tensor;
constexpr size_t kMostOperands = 1 << 16;

Tensor add(const Tensor& a, const Tensor& b) { return a + b; }
Tensor subtract(const Tensor& a, const Tensor& b) { return a - b; }
Tensor multiply(const Tensor& a, const Tensor& b) { return a * b; }
Tensor divide(const Tensor& a, const Tensor& b) { return a / b; }
Tensor add_number(const Tensor& a, const at::Scalar& b) { return a + b; }
Tensor subtract_number(const Tensor& a, const at::Scalar& b) { return a - b; }
Tensor multiply_number(const Tensor& a, const at::Scalar& b) { return a * b; }
Tensor divide_number(const Tensor& a, const at::Scalar& b) { return a / b; }

using Binary = Tensor (*)(const Tensor&, const Tensor&);
using WithNumber = Tensor (*)(const Tensor&, const at::Scalar&);

/// A whole number stays one, so that integers stay integers: x + 1.
at::Scalar scalar_of(double number) {
  constexpr double kExact = 1LL << 53;
  const bool whole = number == std::trunc(number) && std::abs(number) <= kExact;
  return whole ? at::Scalar(static_cast<int64_t>(number)) : at::Scalar(number);
}

/// torch.add, sub, mul, div: the first input combined with the second, that with the third, and so on, up to `kMost` of
/// them, the number `other` counted; that comes last.
template <Binary kCombine, WithNumber kCombineNumber, size_t kMost, OperatorName kOperator>
struct Arithmetic {
  std::optional<double> other;
  static void describe(Fields<Arithmetic>& f) {
    f.optional("other", &Arithmetic::other).doc("a number instead of the last input, the same for each element");
  }
  Layer build(const LayerInputs& in) const {
    if (!other && in.num_own() < 2) throw LayerError("it reads 2 or more inputs, or 1 input and the parameter other");
    in.require_inputs(other ? 1 : 2, other ? kMost - 1 : kMost);
    return {nullptr,
            [other = other](const Tensors& inputs) -> Tensors {
              Tensor result = inputs[0];
              for (size_t i = 1; i < inputs.size(); ++i) result = kCombine(result, inputs[i]);
              return {other ? kCombineNumber(result, scalar_of(*other)) : result};
            },
            kPointwise};
  }
  void onnx(OnnxForm& form) const {
    OnnxValue result = onnx_promoted(form, 0);
    for (size_t i = 1; i < form.num_inputs(); ++i) result = form.op(kOperator.text, {result, onnx_promoted(form, i)});
    form.give(other ? form.op(kOperator.text, {result, form.number(*other, form.output_dtype())}) : result);
  }
};

using Add = Arithmetic<add, add_number, kMostOperands, "Add">;

struct Pow {
  std::optional<double> exponent;
  static void describe(Fields<Pow>& f) {
    f.optional("exponent", &Pow::exponent).doc("a number; without it a second input holds the exponents");
  }
  Layer build(const LayerInputs& in) const {
    if (!exponent && in.num_own() != 2) throw LayerError("it reads 2 inputs, or 1 input and the parameter exponent");
    in.require_inputs(exponent ? 1 : 2, exponent ? 1 : 2);
    return {nullptr,
            [exponent = exponent](const Tensors& inputs) -> Tensors {
              return {exponent ? at::pow(inputs[0], scalar_of(*exponent)) : at::pow(inputs[0], inputs[1])};
            },
            kPointwise};
  }
  void onnx(OnnxForm& form) const {
    const OnnxValue second = exponent ? form.number(*exponent, form.output_dtype()) : onnx_promoted(form, 1);
    form.give(form.op("Pow", {onnx_promoted(form, 0), second}));
  }
};

struct Clamp {
  std::optional<double> min;
  std::optional<double> max;
  static void describe(Fields<Clamp>& f) {
    f.optional("min", &Clamp::min).doc("lower limit; null: none");
    f.optional("max", &Clamp::max).doc("upper limit; null: none. If it is less than min, it takes precedence");
    f.rule({.any = {the("min").is_given(), the("max").is_given()},
            .at = "min",
            .message = "min, max or both must be given"});
  }
  Layer build(const LayerInputs&) const {
    const auto number = [](const std::optional<double>& limit) {
      return limit ? std::optional<at::Scalar>(scalar_of(*limit)) : std::nullopt;
    };
    return layer_of_function(
        [low = number(min), high = number(max)](const Tensor& x) { return at::clamp(x, low, high); }, kPointwise);
  }
  void onnx(OnnxForm& form) const {
    OnnxValue result = onnx_promoted(form, 0);
    if (min) result = form.op("Max", {result, form.number(*min, form.output_dtype())});
    if (max) result = form.op("Min", {result, form.number(*max, form.output_dtype())});
    form.give(result);
  }
};

using Unary = Tensor (*)(const Tensor&);

template <Unary kFunction, OperatorName kOperator>
struct Pointwise {
  static void describe(Fields<Pointwise>&) {}
  Layer build(const LayerInputs& in) const {
    in.require_inputs(1, 1);
    return layer_of_function(kFunction, kPointwise);
  }
  void onnx(OnnxForm& form) const { form.give(form.op(kOperator.text, {onnx_promoted(form, 0)})); }
};

Tensor absolute(const Tensor& x) { return at::abs(x); }
Tensor exponential(const Tensor& x) { return at::exp(x); }
Tensor logarithm(const Tensor& x) { return at::log(x); }
Tensor square_root(const Tensor& x) { return at::sqrt(x); }

}  // namespace

Part add_part(const Tensor& input) { return part_of("Add", Add(), {input, input}); }

void add_elementwise(LayerRegistry& layers) {
  layers.add<Add>("Add", "the sum of its inputs and a number, broadcast");
  layers.add<Arithmetic<multiply, multiply_number, kMostOperands, "Mul">>(
      "Mul", "the product of its inputs and a number, element by element, broadcast");
  layers.add<Arithmetic<subtract, subtract_number, 2, "Sub">>(
      "Sub", "its first input less its second, or less a number, broadcast");
  layers.add<Arithmetic<divide, divide_number, 2, "Div">>(
      "Div", "its first input divided by its second, or by a number, broadcast");
  layers.add<Pow>("Pow", "its input to the power of a number, or of a second input, broadcast");
  layers.add<Clamp>("Clamp", "each element within limits");
  layers.add<Pointwise<absolute, "Abs">>("Abs", "|x|");
  layers.add<Pointwise<exponential, "Exp">>("Exp", "e to the power of x");
  layers.add<Pointwise<logarithm, "Log">>("Log", "the natural logarithm of x");
  layers.add<Pointwise<square_root, "Sqrt">>("Sqrt", "the square root of x");
}

}  // namespace trainrun
