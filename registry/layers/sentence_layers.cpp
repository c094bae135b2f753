#include <ATen/TensorOperators.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/norm.h>

#include <array>
#include <limits>

#include "registry/graph/positions.h"
#include "registry/kinds/layer.h"
#include "registry/layers/onnx_parts.h"

// From the vectors of tokens to one of their text. Source: Reimers and Gurevych 2019, "Sentence-BERT"; as the modules
// Pooling and Normalize of the package sentence-transformers 6.2.

namespace trainrun {

enum class PooledTokens { kMean, kCls, kMax };
template <>
struct Words<PooledTokens> {
  static constexpr std::array kWords = {"mean", "cls", "max"};
};

namespace {

class MaskedPooling : public FunctionOperation, public ReadsPositions {
 public:
  using FunctionOperation::FunctionOperation;
  Reads reads(size_t) const override { return {{Read::kMasked, Read::kAll}, 1}; }
};

struct TokenPooling {
  PooledTokens mode = PooledTokens::kMean;
  static void describe(Fields<TokenPooling>& f) {
    f.optional("mode", &TokenPooling::mode)
        .doc(
            "the mean of the tokens that the mask counts; cls: the first of them; max: the largest value of each "
            "feature");
  }
  Layer build(const LayerInputs& in) const {
    in.require_inputs(2, 2);
    in.require_dims(3, 3, "[N, T, D]");
    if (in.shape(1) != in.shape(0).slice(0, 2)) {
      throw LayerError("it reads tokens' vectors [N, T, D] and their mask [N, T], not " + shape_text(in.shape(0)) +
                       " and " + shape_text(in.shape(1)));
    }
    Layer layer;
    layer.operation = std::make_shared<MaskedPooling>(
        [mode = mode](const Tensors& inputs) -> Tensors { return {pooled(inputs[0], inputs[1], mode)}; }, kComputed);
    return layer;
  }
  void onnx(OnnxForm& form) const {
    const OnnxValue& tokens = form.input(0);
    const OnnxValue mask = form.cast(form.input(1), at::kInt);
    if (mode == PooledTokens::kCls) return form.give(first_form(form, tokens, mask));
    const OnnxValue counted = form.op("Unsqueeze", {form.cast(form.input(1), at::kFloat), form.ints({2})});
    if (mode == PooledTokens::kMax) {
      const OnnxValue lowest = form.number(-std::numeric_limits<double>::infinity());
      const OnnxValue is_padding = form.op("Equal", {counted, form.number(0)});
      const OnnxValue kept = form.op("Where", {is_padding, lowest, tokens});
      return form.give(onnx_reduce(form, "ReduceMax", kept, {1}, false));
    }
    constexpr double kLeast = 1e-9;
    const OnnxValue sum = onnx_reduce(form, "ReduceSum", form.op("Mul", {tokens, counted}), {1}, false);
    const OnnxValue number = onnx_reduce(form, "ReduceSum", counted, {1}, false);
    form.give(form.op("Div", {sum, form.op("Max", {number, form.number(kLeast)})}));
  }

 private:
  static OnnxValue first_form(OnnxForm& form, const OnnxValue& tokens, const OnnxValue& mask) {
    const OnnxValue first = form.op("ArgMax", {mask}, {{"axis", 1}, {"keepdims", 1}});  // [N, 1]
    return form.op("GatherND", {tokens, first}, {{"batch_dims", 1}});
  }
  static at::Tensor pooled(const at::Tensor& tokens, const at::Tensor& mask, PooledTokens mode) {
    if (mode == PooledTokens::kCls) {
      const at::Tensor first = mask.to(at::kInt).argmax(1);  // of several largest the first
      return tokens.gather(1, first.view({-1, 1, 1}).expand({-1, 1, tokens.size(2)})).squeeze(1);
    }
    if (mode == PooledTokens::kMax) {
      return tokens.masked_fill(mask.eq(0).unsqueeze(2), -std::numeric_limits<double>::infinity()).amax(1);
    }
    const bool is_half = tokens.scalar_type() == at::kHalf || tokens.scalar_type() == at::kBFloat16;
    const auto sums = is_half ? at::kFloat : tokens.scalar_type();
    const at::Tensor counted = mask.to(sums).unsqueeze(2);
    constexpr double kLeast = 1e-9;
    return ((tokens.to(sums) * counted).sum(1) / counted.sum(1).clamp_min(kLeast)).to(tokens.scalar_type());
  }
};

struct L2Normalize {
  int64_t dim = -1;
  double eps = 1e-12;
  static void describe(Fields<L2Normalize>& f) {
    f.optional("dim", &L2Normalize::dim).doc("the dimension that holds the vectors");
    f.optional("eps", &L2Normalize::eps).at_least(0).doc("the smallest length used for a vector");
  }
  Layer build(const LayerInputs& in) const {
    in.require_inputs(1, 1);
    return layer_of_function(
        [own = *this](const at::Tensor& x) {
          return x / at::norm(x, 2, {own.dim}, /*keepdim=*/true).clamp_min(own.eps);
        },
        in.traits_along(dim));
  }
  void onnx(OnnxForm& form) const {
    const OnnxValue length = form.op("Max", {onnx_norm(form, form.input(), 2, dim, true), form.number(eps)});
    form.give(form.op("Div", {form.input(), length}));
  }
};

}  // namespace

void add_sentence_layers(LayerRegistry& layers) {
  layers.add<TokenPooling>("TokenPooling", "one vector [N, D] from those of a text's tokens; inputs: [tokens, mask]");
  layers.add<L2Normalize>("L2Normalize", "divides vectors by their length, as torch.nn.functional.normalize does");
}

}  // namespace trainrun
