#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <torch/nn/module.h>

#include <cmath>
#include <limits>

#include "registry/graph/positions.h"
#include "registry/kernels/ragged_attention.h"
#include "registry/kernels/row_moves.h"
#include "registry/kinds/layer.h"
#include "registry/layers/key_value_cache.h"
#include "registry/layers/onnx_attention.h"
#include "registry/layers/scaled_attention.h"

// What language models attend with, without weights of its own: the Linears that make queries, keys and values are
// layers of the model, so that patterns over names, adapters and fusions find them.

namespace trainrun {
namespace {

using at::Tensor;

/// [N, T, heads * D] to [N, heads, T, D].
Tensor heads_of(const Tensor& x, int64_t num_heads) {
  return x.unflatten(-1, {num_heads, x.size(-1) / num_heads}).transpose(1, 2);
}

/// Attention in which a query may see all keys that its mask, the fourth input, marks.
class FullAttention : public FunctionOperation, public ReadsPositions, public ComputesSomePositions {
 public:
  /// `at_positions`: the same of some positions (ComputesSomePositions).
  FullAttention(Layer::Function function, Layer::Function at_positions, const Traits& traits)
      : FunctionOperation(std::move(function), traits), at_positions_(std::move(at_positions)) {}
  Reads reads(size_t num_inputs) const override {
    if (num_inputs == 3) return {{Read::kAsOutput, Read::kAll, Read::kAll}};
    return {{Read::kAsOutput, Read::kMasked, Read::kMasked, Read::kAll}, 3};
  }
  std::shared_ptr<const Operation> at_positions() const override { return operation_of(at_positions_, traits()); }

 private:
  Layer::Function at_positions_;
};

struct ScaledDotProductAttention {
  int64_t num_heads = 0;
  std::optional<int64_t> num_key_value_heads;
  double dropout = 0;
  bool is_causal = false;
  std::optional<int64_t> sliding_window;
  std::optional<double> scale;
  static void describe(Fields<ScaledDotProductAttention>& f) {
    using S = ScaledDotProductAttention;
    f.required("num_heads", &S::num_heads).at_least(1).doc("number of heads, into which the features are divided");
    f.optional("num_key_value_heads", &S::num_key_value_heads)
        .at_least(1)
        .doc("heads of keys and values, each shared by equally many heads of queries; null: num_heads");
    f.optional("dropout", &S::dropout).at_least(0).at_most(1).doc("dropout of the attention weights, while training");
    f.optional("is_causal", &S::is_causal).doc("the query at position i sees the keys up to i only");
    f.optional("sliding_window", &S::sliding_window)
        .at_least(1)
        .doc("the query at position i sees the keys from i - sliding_window + 1 to i only; null: all up to i");
    f.optional("scale", &S::scale)
        .greater_than(0)
        .doc("factor of the scores; null: 1 / sqrt of the features of a head");
    f.rule({.when = {the("sliding_window").is_given()},
            .all = {the("is_causal").is(true)},
            .at = "sliding_window",
            .message = "needs is_causal: true"});
  }

  Layer build(const LayerInputs& in) const {
    in.require_inputs(3, 4);
    in.require_dims(3, 3, "[N, T, C]");
    check(in);
    const auto mode = std::make_shared<torch::nn::Module>();  // knows training from evaluation
    Layer::Function function = [mode, own = *this](const Tensors& inputs) -> Tensors {
      return {own.attend(inputs, mode->is_training() ? own.dropout : 0)};
    };
    if (is_causal) return going_on(mode, std::move(function));
    Layer layer;
    layer.state = mode;
    const auto at_positions = [mode, own = *this](const Tensors& inputs) -> Tensors {
      return {own.attend_at_positions(inputs, mode->is_training() ? own.dropout : 0)};
    };
    layer.operation = std::make_shared<FullAttention>(std::move(function), at_positions, traits());
    return layer;
  }

  void onnx(OnnxForm& form) const {
    const int64_t head_dim = form.fixed_size(2) / num_heads;
    const double factor = scale.value_or(1 / std::sqrt(static_cast<double>(head_dim)));
    OnnxAttention attention;
    attention.query = onnx_heads(form, form.input(0), num_heads);
    attention.key = onnx_heads(form, form.input(1), key_heads());
    attention.value = onnx_heads(form, form.input(2), key_heads());
    attention.repeats = num_heads / key_heads();
    attention.scale = factor;
    attention.mask = mask_form(form);
    form.give(onnx_joined_heads(form, onnx_attended(form, attention)));
  }

 private:
  /// The same as `mask`.
  OnnxValue mask_form(OnnxForm& form) const {
    OnnxValue seen;
    if (form.num_inputs() == 4) {
      const OnnxValue own = onnx_seen(form, form.input(3), form.dtype(3));  // [N, S]
      seen = form.op("Unsqueeze", {own, form.ints({1, 2})});
      if (is_causal) seen = form.op("And", {seen, same_text_form(form, own)});
    }
    if (is_causal) {
      const OnnxValue causal = onnx_causal(form, form.input(0), form.input(1), 1, sliding_window);
      seen = seen.name.empty() ? causal : form.op("And", {seen, causal});
    }
    if (seen.name.empty()) return {};
    return form.op("Where", {seen, form.number(0), form.number(std::numeric_limits<float>::lowest() / 2)});
  }

  static OnnxValue same_text_form(OnnxForm& form, const OnnxValue& seen) {
    const OnnxValue& given = form.input(3);
    const OnnxValue queries = form.op("Unsqueeze", {given, form.ints({1, 3})});
    const OnnxValue keys = form.op("Unsqueeze", {given, form.ints({1, 2})});
    const OnnxValue is_padding = form.op("Unsqueeze", {form.op("Not", {seen}), form.ints({1, 3})});
    return form.op("Or", {form.op("Equal", {queries, keys}), is_padding});
  }

  Operation::Traits traits() const { return {.random = dropout > 0, .capturable = true, .half_precision = true}; }

  Layer going_on(const std::shared_ptr<torch::nn::Module>& mode, Layer::Function function) const {
    const auto further = [own = *this](const Tensors& inputs, const DecodingPoint& point, Tensors& memory) -> Tensors {
      NextTokens next = {heads_of(inputs[0], own.num_heads),
                         heads_of(inputs[1], own.key_heads()),
                         heads_of(inputs[2], own.key_heads()),
                         {},
                         own.sliding_window,
                         own.scale};
      if (inputs.size() == 4) next.seen = is_seen(inputs[3]);
      return {attend_further(next, point, memory).transpose(1, 2).flatten(2)};
    };
    return decoding_layer(mode, std::move(function), further, traits());
  }

  /// true where a key is looked at.
  static Tensor is_seen(const Tensor& given) {
    TORCH_CHECK(!given.is_floating_point(), "the attention mask holds integers, or booleans that mark the padding");
    return given.scalar_type() == at::kBool ? given.logical_not() : given != 0;
  }

  /// [N, 1, T, T]: whether a query may look at a key at all, where texts lie one after the other and the mask numbers
  /// them from 1. What padding looks at does not matter; it looks at everything, as in transformers.
  static Tensor is_of_same_text(const Tensor& given) {
    const Tensor queries = given.unsqueeze(1).unsqueeze(3);
    return (queries == given.unsqueeze(1).unsqueeze(2))
        .logical_or_(is_seen(given).logical_not().unsqueeze(1).unsqueeze(3));
  }

  int64_t key_heads() const { return num_key_value_heads.value_or(num_heads); }

  void check(const LayerInputs& in) const {
    const int64_t features = in.shape(0)[2];
    const auto count = [](int64_t number, const char* what) { return std::to_string(number) + " " + what; };
    if (features % num_heads != 0) {
      throw LayerError(count(num_heads, "heads do not divide the ") + count(features, "features of the queries"));
    }
    if (num_heads % key_heads() != 0) {
      throw LayerError(count(key_heads(), "heads of keys do not divide the ") + count(num_heads, "heads of queries"));
    }
    const int64_t expected = features / num_heads * key_heads();
    for (const size_t i : {1, 2}) {
      const at::IntArrayRef shape = in.shape(i);
      if (shape.size() == 3 && shape[2] == expected) continue;
      throw LayerError(std::string(i == 1 ? "keys" : "values") + " are " + shape_text(shape) +
                       ", but with these queries and heads they have " + count(expected, "features"));
    }
  }

  Tensor attend(const Tensors& inputs, double p) const {
    const Tensor query = heads_of(inputs[0], num_heads);
    const Tensor key = heads_of(inputs[1], key_heads());
    const Tensor value = heads_of(inputs[2], key_heads());
    const Tensor mask = this->mask(query, key.size(2), inputs.size() == 4 ? inputs[3] : Tensor());
    const bool plainly_causal = is_causal && !mask.defined();
    const Tensor mixed = scaled_attention(query, key, value, {mask, p, plainly_causal, scale});
    return mixed.transpose(1, 2).flatten(2);
  }

  /// inputs: queries, keys and values [1, K, C] of some positions, the mask [N, T], a tensor of as many positions, and the
  /// numbers of those that are there [K].
  Tensor attend_at_positions(const Tensors& inputs, double p) const {
    const Tensor &mask = inputs[3], &rows = inputs[5];
    const kernels::RaggedTexts texts{rows, mask};
    const AttentionTerms terms{{}, p, false, scale};
    if (kernels::supports_ragged_attention(inputs[0], inputs[1], inputs[2], num_heads, texts, terms)) {
      return kernels::ragged_attention(inputs[0], inputs[1], inputs[2], num_heads, texts, terms);
    }
    Tensors whole;
    for (size_t i = 0; i < 3; ++i) whole.push_back(kernels::put_positions(inputs[i], rows, mask));
    whole.push_back(mask);
    return kernels::taken_positions(attend(whole, p), rows).unsqueeze(0);
  }

  /// What is added to the scores [N, heads, L, S]; undefined for nothing but, perhaps, causality. Where a query may see
  /// no key at all (one of padding), all its scores are the same, as in transformers, and not infinite.
  Tensor mask(const Tensor& query, int64_t num_keys, const Tensor& given) const {
    const int64_t num_queries = query.size(2);
    const bool windowed = sliding_window && *sliding_window < num_keys;
    Tensor seen;  // true where a key is looked at
    if (given.defined()) {
      const bool fits = given.dim() == 2 && given.size(0) == query.size(0) && given.size(1) == num_keys;
      TORCH_CHECK(fits, "the attention mask of ", num_keys, " keys is [N, ", num_keys, "], not ", given.sizes());
      seen = is_seen(given).view({-1, 1, 1, num_keys});
    }
    if (is_causal && given.defined()) seen = seen.logical_and(is_of_same_text(given));
    if (is_causal && (given.defined() || windowed)) {
      Tensor causal = at::ones({num_queries, num_keys}, query.options().dtype(at::kBool)).tril();
      if (windowed) causal = causal.triu(1 - *sliding_window);
      seen = seen.defined() ? seen.logical_and(causal) : causal.view({1, 1, num_queries, num_keys});
    }
    if (!seen.defined()) return {};
    const double never = query.scalar_type() == at::kHalf ? -65504 : std::numeric_limits<float>::lowest() / 2;
    return seen.eq(0).to(query.scalar_type()) * never;
  }
};

}  // namespace

void add_self_attention(LayerRegistry& layers) {
  layers.add<ScaledDotProductAttention>(
      "ScaledDotProductAttention",
      "attention of several heads without weights: queries, keys and values [N, T, C], and perhaps an attention mask "
      "[N, T] of integers, to [N, T, C]. 0 marks padding; with is_causal, tokens see only those with their own number, "
      "so that texts packed one after the other and numbered from 1 do not see each other");
}

}  // namespace trainrun
