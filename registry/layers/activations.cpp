#include <ATen/TensorOperators.h>
#include <ATen/ops/celu.h>
#include <ATen/ops/elu.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/glu.h>
#include <ATen/ops/hardshrink.h>
#include <ATen/ops/hardsigmoid.h>
#include <ATen/ops/hardswish.h>
#include <ATen/ops/hardtanh.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/mish.h>
#include <ATen/ops/prelu.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/relu6.h>
#include <ATen/ops/rrelu.h>
#include <ATen/ops/selu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/softshrink.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/threshold.h>
#include <torch/nn/module.h>

#include "registry/layers/onnx_parts.h"
#include "registry/layers/parts.h"

namespace trainrun {
namespace {

using at::Tensor;

/// Builds what is a function of one tensor: `Own` has `describe` and `Tensor apply(Tensor) const`, in which it may
/// overwrite its argument if it is `inplace`. It is one of single elements, or `Own` has `traits(in)`. In ONNX it is
/// `OnnxValue form(OnnxForm&, const OnnxValue&) const`.
template <class Own>
struct Activation {  // NOLINT(bugprone-crtp-constructor-accessibility): a recipe's struct is an aggregate
  Layer build(const LayerInputs& in) const {
    const Own& own = static_cast<const Own&>(*this);
    if constexpr (requires { own.check_inputs(in); }) own.check_inputs(in);
    bool inplace = false;
    if constexpr (requires { own.inplace; }) inplace = own.inplace;
    Operation::Traits traits = kPointwise;
    if constexpr (requires { own.traits(in); }) traits = own.traits(in);
    traits.in_place = traits.view = inplace;
    return layer_of_function([own](const Tensor& input) { return own.apply(input); }, traits);
  }
  void onnx(OnnxForm& form) const { form.give(static_cast<const Own&>(*this).form(form, form.input())); }
};

template <class Own>
void describe_inplace(Fields<Own>& f) {
  f.optional("inplace", &Own::inplace).doc("overwrite the input; saves memory where nothing else reads it");
}

/// A function without parameters.
template <Tensor (*kFunction)(const Tensor&), OnnxUnary kForm>
struct Plain : Activation<Plain<kFunction, kForm>> {
  static void describe(Fields<Plain>&) {}
  Tensor apply(const Tensor& x) const { return kFunction(x); }
  OnnxValue form(OnnxForm& form, const OnnxValue& x) const { return kForm(form, x); }
};

Tensor softsign(const Tensor& x) { return x / (x.abs() + 1); }
Tensor tanhshrink(const Tensor& x) { return x - x.tanh(); }

// Of those that are not one operator of ONNX.
OnnxValue relu6_form(OnnxForm& form, const OnnxValue& x) { return onnx_clamp(form, x, 0, 6); }
OnnxValue mish_form(OnnxForm& form, const OnnxValue& x) {
  return form.op("Mul", {x, form.op("Tanh", {form.op("Softplus", {x})})});
}
OnnxValue hardsigmoid_form(OnnxForm& form, const OnnxValue& x) {
  return form.op("HardSigmoid", {x}, {{"alpha", 1.0 / 6}, {"beta", 0.5}});
}
OnnxValue log_sigmoid_form(OnnxForm& form, const OnnxValue& x) {
  return form.op("Neg", {form.op("Softplus", {form.op("Neg", {x})})});
}
OnnxValue tanhshrink_form(OnnxForm& form, const OnnxValue& x) { return form.op("Sub", {x, form.op("Tanh", {x})}); }

/// A function whose only parameter is `inplace`.
template <Tensor (*kFunction)(const Tensor&), Tensor& (*kOverwrite)(Tensor&), OnnxUnary kForm>
struct Inplace : Activation<Inplace<kFunction, kOverwrite, kForm>> {
  bool inplace = false;
  static void describe(Fields<Inplace>& f) { describe_inplace(f); }
  Tensor apply(Tensor x) const { return inplace ? kOverwrite(x) : kFunction(x); }
  OnnxValue form(OnnxForm& form, const OnnxValue& x) const { return kForm(form, x); }
};

struct GELU : Activation<GELU> {
  std::string approximate = "none";
  static void describe(Fields<GELU>& f) {
    f.optional("approximate", &GELU::approximate)
        .one_of({"none", "tanh"})
        .doc("the tanh formula instead of the error function");
  }
  Tensor apply(const Tensor& x) const { return at::gelu(x, approximate); }
  OnnxValue form(OnnxForm& form, const OnnxValue& x) const {
    return form.op("Gelu", {x}, {{"approximate", approximate}});
  }
};

struct LeakyReLU : Activation<LeakyReLU> {
  double negative_slope = 0.01;
  bool inplace = false;
  static void describe(Fields<LeakyReLU>& f) {
    f.optional("negative_slope", &LeakyReLU::negative_slope).doc("slope below 0");
    describe_inplace(f);
    f.rule({.when = {the("inplace").is(true)},
            .all = {the("negative_slope").is_at_least(0)},
            .at = "inplace",
            .message = "has no gradient where negative_slope is negative"});
  }
  Tensor apply(Tensor x) const {
    return inplace ? at::leaky_relu_(x, negative_slope) : at::leaky_relu(x, negative_slope);
  }
  OnnxValue form(OnnxForm& form, const OnnxValue& x) const {
    return form.op("LeakyRelu", {x}, {{"alpha", negative_slope}});
  }
};

/// ELU, CELU: a function that tends to -alpha.
template <bool kContinuous>
struct ExponentialUnit : Activation<ExponentialUnit<kContinuous>> {
  double alpha = 1;
  bool inplace = false;
  static void describe(Fields<ExponentialUnit>& f) {
    f.optional("alpha", &ExponentialUnit::alpha).doc("the function tends to -alpha where its input tends to -infinity");
    describe_inplace(f);
    if (kContinuous) {
      f.rule({.all = {the("alpha").is_not(0)}, .at = "alpha", .message = "must not be 0, by which CELU divides"});
    }
    f.rule({.when = {the("inplace").is(true)},
            .all = {the("alpha").is_at_least(0)},
            .at = "inplace",
            .message = "has no gradient where alpha is negative"});
  }
  Tensor apply(Tensor x) const {
    if constexpr (kContinuous) return inplace ? at::celu_(x, alpha) : at::celu(x, alpha);
    return inplace ? at::elu_(x, alpha) : at::elu(x, alpha);
  }
  OnnxValue form(OnnxForm& form, const OnnxValue& x) const {
    return form.op(kContinuous ? "Celu" : "Elu", {x}, {{"alpha", alpha}});
  }
};

struct Hardtanh : Activation<Hardtanh> {
  double min_val = -1;
  double max_val = 1;
  bool inplace = false;
  static void describe(Fields<Hardtanh>& f) {
    f.optional("min_val", &Hardtanh::min_val).doc("the smallest output");
    f.optional("max_val", &Hardtanh::max_val).doc("the largest output");
    describe_inplace(f);
  }
  void check(Checker& checker) const {
    if (max_val <= min_val) checker.fail("max_val", "must be greater than min_val");
  }
  Tensor apply(Tensor x) const {
    return inplace ? at::hardtanh_(x, min_val, max_val) : at::hardtanh(x, min_val, max_val);
  }
  OnnxValue form(OnnxForm& form, const OnnxValue& x) const { return onnx_clamp(form, x, min_val, max_val); }
};

struct Threshold : Activation<Threshold> {
  double threshold = 0;
  double value = 0;
  bool inplace = false;
  static void describe(Fields<Threshold>& f) {
    f.required("threshold", &Threshold::threshold).doc("values above it do not change");
    f.required("value", &Threshold::value).doc("value that replaces all others");
    describe_inplace(f);
  }
  Tensor apply(Tensor x) const {
    return inplace ? at::threshold_(x, threshold, value) : at::threshold(x, threshold, value);
  }
  OnnxValue form(OnnxForm& form, const OnnxValue& x) const {
    return form.op("Where", {onnx_with(form, "Greater", x, threshold), x, form.number(value)});
  }
};

struct Softplus : Activation<Softplus> {
  double beta = 1;
  double threshold = 20;
  static void describe(Fields<Softplus>& f) {
    f.optional("beta", &Softplus::beta).greater_than(0).doc("the larger it is, the sharper the bend");
    f.optional("threshold", &Softplus::threshold).doc("where beta * x is greater, the output is x itself");
  }
  Tensor apply(const Tensor& x) const { return at::softplus(x, beta, threshold); }
  OnnxValue form(OnnxForm& form, const OnnxValue& x) const {
    const OnnxValue scaled = onnx_with(form, "Mul", x, beta);
    const OnnxValue bent = onnx_with(form, "Div", form.op("Softplus", {scaled}), beta);
    return form.op("Where", {onnx_with(form, "Greater", scaled, threshold), x, bent});
  }
};

/// Softshrink, Hardshrink.
template <Tensor (*kFunction)(const Tensor&, const at::Scalar&), bool kSoft>
struct Shrink : Activation<Shrink<kFunction, kSoft>> {
  double lambd = 0.5;
  static void describe(Fields<Shrink>& f) {
    f.optional("lambd", &Shrink::lambd).at_least(0).doc("values between -lambd and lambd become 0");
  }
  Tensor apply(const Tensor& x) const { return kFunction(x, lambd); }
  OnnxValue form(OnnxForm& form, const OnnxValue& x) const {
    return form.op("Shrink", {x}, {{"lambd", lambd}, {"bias", kSoft ? lambd : 0.0}});
  }
};

struct GLU : Activation<GLU> {
  int64_t dim = -1;
  static void describe(Fields<GLU>& f) { f.optional("dim", &GLU::dim).doc("the dimension that is halved"); }
  Operation::Traits traits(const LayerInputs& in) const { return in.traits_along(dim); }
  Tensor apply(const Tensor& x) const { return at::glu(x, dim); }
  OnnxValue form(OnnxForm& form, const OnnxValue& x) const {
    const OnnxValues halves = form.ops("Split", {x}, 2, {{"axis", dim}, {"num_outputs", 2}});
    return form.op("Mul", {halves[0], form.op("Sigmoid", {halves[1]})});
  }
};

Tensor softmax(const Tensor& x, int64_t dim) { return at::softmax(x, dim); }
Tensor log_softmax(const Tensor& x, int64_t dim) { return at::log_softmax(x, dim); }
Tensor softmin(const Tensor& x, int64_t dim) { return at::softmax(-x, dim); }

/// Softmax, LogSoftmax, Softmin: of -x.
template <Tensor (*kFunction)(const Tensor&, int64_t), OperatorName kOperator, bool kOfNegative = false>
struct Normalized : Activation<Normalized<kFunction, kOperator, kOfNegative>> {
  std::optional<int64_t> dim;
  static void describe(Fields<Normalized>& f) {
    f.optional("dim", &Normalized::dim).doc("the dimension whose entries add up to 1; null: 1, that of the classes");
  }
  /// PyTorch's choice for null is dimension 1, but of three dimensions the batch.
  void check_inputs(const LayerInputs& in) const {
    if (!dim && in.shape().size() == 3) {
      throw LayerError("write dim: PyTorch's own choice for " + shape_text(in.shape()) + " is 0, the batch");
    }
  }
  Operation::Traits traits(const LayerInputs& in) const { return in.traits_along(dim.value_or(1)); }
  Tensor apply(const Tensor& x) const { return kFunction(x, dim.value_or(1)); }
  OnnxValue form(OnnxForm& form, const OnnxValue& x) const {
    return form.op(kOperator.text, {kOfNegative ? form.op("Neg", {x}) : x}, {{"axis", dim.value_or(1)}});
  }
};

struct PReLUModule : torch::nn::Module {
  explicit PReLUModule(int64_t num_parameters)
      : weight(register_parameter("weight", at::full({num_parameters}, 0.25))) {}
  Tensor weight;
};

struct PReLU {
  int64_t num_parameters = 1;
  static void describe(Fields<PReLU>& f) {
    f.optional("num_parameters", &PReLU::num_parameters)
        .at_least(1)
        .doc("learned slopes: one for all, or one for each channel of the input");
  }
  Layer build(const LayerInputs& in) const {
    if (num_parameters != 1) in.infer("num_parameters", num_parameters, 1);
    const auto module = std::make_shared<PReLUModule>(num_parameters);
    return {module, [module](const Tensors& inputs) -> Tensors { return {at::prelu(inputs[0], module->weight)}; },
            kComputed};
  }
  void onnx(OnnxForm& form) const {
    const int64_t behind = num_parameters == 1 ? 0 : std::max<int64_t>(form.rank() - 2, 0);
    std::vector<int64_t> shape(static_cast<size_t>(behind), 1);
    shape.insert(shape.begin(), num_parameters);
    form.give(form.op("PRelu", {form.input(), form.reshape(form.state("weight"), shape)}));
  }
};

/// Keeps nothing, but knows training from evaluation.
struct Mode : torch::nn::Module {};

struct RReLU {
  double lower = 1.0 / 8;
  double upper = 1.0 / 3;
  bool inplace = false;
  static void describe(Fields<RReLU>& f) {
    f.optional("lower", &RReLU::lower).doc("least slope below 0");
    f.optional("upper", &RReLU::upper).doc("greatest slope below 0; evaluation takes the mean of both");
    describe_inplace(f);
  }
  void check(Checker& checker) const {
    if (upper < lower) checker.fail("upper", "must not be smaller than lower");
  }
  Layer build(const LayerInputs&) const {
    const auto mode = std::make_shared<Mode>();
    return {mode,
            [mode, own = *this](const Tensors& inputs) -> Tensors {
              Tensor x = inputs[0];
              const bool training = mode->is_training();
              return {own.inplace ? at::rrelu_(x, own.lower, own.upper, training)
                                  : at::rrelu(x, own.lower, own.upper, training)};
            },
            {.in_place = inplace,
             .view = inplace,
             .random = true,
             .pointwise = true,
             .position_wise = true,
             .capturable = true,
             .half_precision = true}};
  }
  void onnx(OnnxForm& form) const { form.give(form.op("LeakyRelu", {form.input()}, {{"alpha", (lower + upper) / 2}})); }
};

using ReLU = Inplace<at::relu, at::relu_, onnx_op<"Relu">>;

}  // namespace

Part relu_part(const Tensor& input) { return part_of("ReLU", ReLU(), {input}); }
Part gelu_part(const Tensor& input) { return part_of("GELU", GELU(), {input}); }

void add_activations(LayerRegistry& layers) {
  layers.add<ReLU>("ReLU", "max(0, x)");
  layers.add<Inplace<at::relu6, at::relu6_, relu6_form>>("ReLU6", "min(max(0, x), 6)");
  layers.add<Inplace<at::selu, at::selu_, onnx_op<"Selu">>>(
      "SELU", "scaled exponential linear unit: keeps mean 0 and variance 1");
  layers.add<Inplace<at::silu, at::silu_, onnx_silu>>("SiLU", "x * sigmoid(x), also called swish");
  layers.add<Inplace<at::mish, at::mish_, mish_form>>("Mish", "x * tanh(softplus(x))");
  layers.add<Inplace<at::hardswish, at::hardswish_, onnx_op<"HardSwish">>>("Hardswish", "x * relu6(x + 3) / 6");
  layers.add<Inplace<at::hardsigmoid, at::hardsigmoid_, hardsigmoid_form>>("Hardsigmoid", "relu6(x + 3) / 6");
  layers.add<Plain<at::sigmoid, onnx_op<"Sigmoid">>>("Sigmoid", "1 / (1 + exp(-x))");
  layers.add<Plain<at::tanh, onnx_op<"Tanh">>>("Tanh", "hyperbolic tangent");
  layers.add<Plain<at::log_sigmoid, log_sigmoid_form>>("LogSigmoid", "log(sigmoid(x))");
  layers.add<Plain<softsign, onnx_op<"Softsign">>>("Softsign", "x / (1 + |x|)");
  layers.add<Plain<tanhshrink, tanhshrink_form>>("Tanhshrink", "x - tanh(x)");
  layers.add<GELU>("GELU", "Gaussian error linear unit, x times the normal distribution function of x");
  layers.add<LeakyReLU>("LeakyReLU", "x where positive, else negative_slope * x");
  layers.add<PReLU>("PReLU", "x where positive, else x times a learned slope");
  layers.add<RReLU>("RReLU", "x where positive, else x times a slope that is random while training");
  layers.add<ExponentialUnit<false>>("ELU", "x where positive, else alpha * (exp(x) - 1)");
  layers.add<ExponentialUnit<true>>("CELU", "x where positive, else alpha * (exp(x / alpha) - 1)");
  layers.add<Hardtanh>("Hardtanh", "x limited to [min_val, max_val]");
  layers.add<Threshold>("Threshold", "x where it is greater than the threshold, else a value");
  layers.add<Softplus>("Softplus", "log(1 + exp(beta * x)) / beta, a smooth ReLU");
  layers.add<Shrink<at::softshrink, true>>("Softshrink", "x drawn towards 0 by lambd");
  layers.add<Shrink<at::hardshrink, false>>("Hardshrink", "x, but 0 between -lambd and lambd");
  layers.add<GLU>("GLU", "one half of a dimension times the sigmoid of the other");
  layers.add<Normalized<softmax, "Softmax">>("Softmax", "exp(x) over its sum along a dimension");
  layers.add<Normalized<log_softmax, "LogSoftmax">>("LogSoftmax", "the logarithm of Softmax; for NLLLoss");
  layers.add<Normalized<softmin, "Softmax", true>>("Softmin", "Softmax of -x");
}

}  // namespace trainrun
