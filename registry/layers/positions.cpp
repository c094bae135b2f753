#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/where.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>

#include "registry/kinds/layer.h"
#include "registry/layers/onnx_parts.h"

// Where a token stands in its text: positions, and what language models turn their queries and keys by.

namespace trainrun {
namespace {

using at::Tensor;

/// Cosines and sines [T, D] of positions 0, 1, …, as they were last asked for.
struct RotationModule : torch::nn::Module {
  Tensor cosines;
  Tensor sines;
};

/// Rotary positions, in the layout of Hugging Face: the first half of a head's features pairs with the second.
struct RotaryEmbedding {
  int64_t head_dim = 0;
  double base = 10000;
  std::string scaling = "none";
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int64_t original_max_position_embeddings = 8192;
  double beta_fast = 32;
  double beta_slow = 1;
  bool truncate = true;
  std::optional<double> attention_factor;
  static void describe(Fields<RotaryEmbedding>& f) {
    using R = RotaryEmbedding;
    f.required("head_dim", &R::head_dim).at_least(2).doc("features of a head; even");
    f.optional("base", &R::base).greater_than(0).doc("wavelengths go from 2 pi to about base * 2 pi (rope_theta)");
    f.optional("scaling", &R::scaling)
        .one_of({"none", "linear", "llama3", "yarn"})
        .doc(
            "for sequences longer than a model was trained with: positions divided by factor, Llama 3.1's rule, or "
            "YaRN's");
    f.optional("factor", &R::factor).at_least(1).doc("how much longer the sequences are");
    f.optional("low_freq_factor", &R::low_freq_factor)
        .greater_than(0)
        .doc("llama3: waves that fit into the original length fewer times than this are scaled by factor");
    f.optional("high_freq_factor", &R::high_freq_factor)
        .greater_than(0)
        .doc("llama3: waves that fit into the original length more often than this are left unchanged");
    f.optional("original_max_position_embeddings", &R::original_max_position_embeddings)
        .at_least(1)
        .doc("llama3, yarn: the length that the model was trained with");
    f.optional("beta_fast", &R::beta_fast)
        .greater_than(0)
        .doc("yarn: waves that turn more often than this within the original length are left unchanged");
    f.optional("beta_slow", &R::beta_slow)
        .greater_than(0)
        .doc("yarn: waves that turn fewer times than this within the original length are scaled by factor");
    f.optional("truncate", &R::truncate).doc("yarn: round the limits between these waves outwards to whole features");
    f.optional("attention_factor", &R::attention_factor)
        .greater_than(0)
        .doc("yarn: factor of queries and keys; null: 0.1 ln(factor) + 1");
    f.rule({.when = {the("scaling").is("none")},
            .all = {the("factor").is(1)},
            .at = "factor",
            .message = "needs scaling: linear, llama3 or yarn"});
  }
  void check(Checker& checker) const {
    if (head_dim % 2 != 0) checker.fail("head_dim", "must be even, is " + std::to_string(head_dim));
    if (scaling == "llama3" && high_freq_factor <= low_freq_factor) {
      checker.fail("high_freq_factor", "must be greater than low_freq_factor");
    }
    if (scaling == "yarn" && beta_fast < beta_slow) checker.fail("beta_fast", "must be at least beta_slow");
    if (scaling == "yarn" && base <= 1) checker.fail("base", "must be greater than 1 for yarn");
  }

  Layer build(const LayerInputs& in) const {
    in.require_dims(3, 3, "[N, T, C]");
    const bool has_positions = in.num_own() > 1 && !at::isFloatingType(in.examples[in.num_own() - 1].scalar_type());
    for (size_t i = 0; i + (has_positions ? 1 : 0) < in.num_own(); ++i) {
      const at::IntArrayRef shape = in.shape(i);
      if (shape.size() == 3 && shape[2] % head_dim == 0) continue;
      throw LayerError("heads of " + std::to_string(head_dim) + " features do not divide " + shape_text(shape));
    }
    const auto module = std::make_shared<RotationModule>();
    const auto further = [own = *this, has_positions](const Tensors& inputs, const DecodingPoint& point,
                                                      Tensors&) -> Tensors {
      Tensors given = inputs;
      if (!has_positions) given.push_back(point.positions(inputs[0].size(1), inputs[0].device()));
      return own.rotate_by(given);
    };
    return decoding_layer(module,
                          [module, own = *this, has_positions](const Tensors& inputs) -> Tensors {
                            return own.rotate(*module, inputs, has_positions);
                          },
                          further, {.half_precision = true});
  }

  void onnx(OnnxForm& form) const {
    const size_t last = form.num_inputs() - 1;
    const bool has_positions = last > 0 && !at::isFloatingType(form.dtype(last));
    const OnnxValue positions =
        form.cast(has_positions ? form.input(last) : onnx_range(form, form.input(), 1), at::kFloat);
    const OnnxValue rates = form.constant(rates_of(at::TensorOptions(at::kFloat)));
    const OnnxValue half = form.op("Mul", {form.op("Unsqueeze", {positions, form.ints({-1})}), rates});
    const OnnxValue angles = form.op("Unsqueeze", {form.op("Concat", {half, half}, {{"axis", -1}}), form.ints({-2})});
    const auto wave = [&](const char* function) {  // [N or nothing, T, 1, D]
      const OnnxValue waves = form.op(function, {angles});
      return scaling == "yarn" ? onnx_with(form, "Mul", waves, magnitude()) : waves;
    };
    const OnnxValue cosines = wave("Cos");
    const OnnxValue sines = wave("Sin");
    for (size_t i = 0; i < form.num_inputs() - (has_positions ? 1 : 0); ++i) {
      const OnnxValue x = form.reshape(form.input(i), {0, 0, -1, head_dim});
      const OnnxValues halves = form.ops("Split", {x}, 2, {{"axis", -1}, {"num_outputs", 2}});
      const OnnxValue swapped = form.op("Concat", {form.op("Neg", {halves[1]}), halves[0]}, {{"axis", -1}});
      const OnnxValue turned = form.op("Add", {form.op("Mul", {x, cosines}), form.op("Mul", {swapped, sines})});
      form.give(form.reshape(turned, {0, 0, -1}));
    }
  }

 private:
  /// The last of `inputs` are the positions.
  Tensors rotate_by(const Tensors& inputs) const {
    const Tensor& first = inputs[0];
    const Tensor angles = angles_of(inputs.back().to(exact_type(first)));
    return turned(inputs, inputs.size() - 1, scaled(angles.cos()).to(first.scalar_type()),
                  scaled(angles.sin()).to(first.scalar_type()));
  }

  static at::ScalarType exact_type(const Tensor& x) {
    return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  }

  Tensors rotate(RotationModule& module, const Tensors& inputs, bool has_positions) const {
    if (has_positions) return rotate_by(inputs);
    const Tensor& first = inputs[0];
    const Tensor& last = module.cosines;
    const int64_t length = first.size(1);
    if (!last.defined() || last.size(0) != length || last.scalar_type() != first.scalar_type() ||
        last.device() != first.device()) {
      const Tensor angles = angles_of(at::arange(length, first.options().dtype(exact_type(first))));
      module.cosines = scaled(angles.cos()).to(first.scalar_type());
      module.sines = scaled(angles.sin()).to(first.scalar_type());
    }
    return turned(inputs, inputs.size(), module.cosines, module.sines);
  }

  /// The first `count` of `inputs`, turned.
  Tensors turned(const Tensors& inputs, size_t count, const Tensor& cosines, const Tensor& sines) const {
    Tensors rotated;
    for (size_t i = 0; i < count; ++i) {
      const Tensor x = inputs[i].unflatten(-1, {-1, head_dim});  // [N, T, heads, D]
      const Tensors halves = x.chunk(2, -1);
      const Tensor swapped = at::cat({-halves[1], halves[0]}, -1);
      rotated.push_back((x * cosines.unsqueeze(-2) + swapped * sines.unsqueeze(-2)).flatten(2));
    }
    return rotated;
  }

  /// [..., D] of positions [...].
  Tensor angles_of(const Tensor& positions) const {
    const Tensor half = positions.unsqueeze(-1) * rates_of(positions.options());
    return at::cat({half, half}, -1);
  }

  /// [D / 2]: what a position is multiplied by.
  Tensor rates_of(const at::TensorOptions& options) const {
    const Tensor exponents = at::arange(0, head_dim, 2, options) / static_cast<double>(head_dim);
    const Tensor rates = at::full({}, base, options).pow(exponents).reciprocal();
    if (scaling == "linear") return rates / factor;
    if (scaling == "llama3") return llama3(rates);
    return scaling == "yarn" ? yarn(rates) : rates;
  }

  /// Source: Llama 3.1's reference implementation, as transformers has it (rope_type: llama3).
  Tensor llama3(const Tensor& rates) const {
    constexpr double kTurn = 6.283185307179586;
    const auto original = static_cast<double>(original_max_position_embeddings);
    const Tensor wavelengths = kTurn / rates;
    const Tensor slowed = rates / factor;
    const Tensor smooth = (original / wavelengths - low_freq_factor) / (high_freq_factor - low_freq_factor);
    const Tensor between = (1 - smooth) * slowed + smooth * rates;
    const Tensor is_long = wavelengths > original / low_freq_factor;
    const Tensor is_short = wavelengths < original / high_freq_factor;
    return at::where(is_long, slowed, at::where(is_short, rates, between));
  }

  /// Source: Peng et al. 2023, "YaRN: Efficient Context Window Extension of Large Language Models", as transformers has
  /// it (rope_type: yarn).
  Tensor yarn(const Tensor& rates) const {
    double first = feature_that_turns(beta_fast);
    double last = feature_that_turns(beta_slow);
    if (truncate) {
      first = std::floor(first);
      last = std::ceil(last);
    }
    first = std::max(first, 0.0);
    last = std::min(last, static_cast<double>(head_dim - 1));
    if (first == last) last += 0.001;
    const Tensor numbers = at::arange(head_dim / 2, rates.options());
    const Tensor share_scaled = at::clamp((numbers - first) / (last - first), 0, 1);
    return rates / factor * share_scaled + rates * (1 - share_scaled);
  }

  /// The number of the pair of features whose wave turns so often within the original length.
  double feature_that_turns(double times) const {
    constexpr double kTurn = 6.283185307179586;
    const auto original = static_cast<double>(original_max_position_embeddings);
    return static_cast<double>(head_dim) * std::log(original / (times * kTurn)) / (2 * std::log(base));
  }

  Tensor scaled(const Tensor& waves) const { return scaling == "yarn" ? waves * magnitude() : waves; }
  double magnitude() const { return attention_factor.value_or(0.1 * std::log(factor) + 1); }
};

struct PositionIds {
  std::optional<int64_t> padding_idx;
  std::optional<int64_t> max_positions;
  static void describe(Fields<PositionIds>& f) {
    f.optional("padding_idx", &PositionIds::padding_idx)
        .at_least(0)
        .doc(
            "the padding token, which also is its own position; the other tokens count from the next number, as in "
            "RoBERTa");
    f.optional("max_positions", &PositionIds::max_positions)
        .at_least(1)
        .doc("number of positions; longer sequences are refused");
  }
  Layer build(const LayerInputs& in) const {
    in.require_inputs(1, 1);
    in.require_dims(2, 2, "token ids [N, T]");
    const auto all = [own = *this](const Tensors& inputs) -> Tensors { return {own.of(inputs[0])}; };
    Operation::Traits traits = kComputed;
    if (max_positions) traits.max_length = *max_positions - first();
    if (padding_idx) return {nullptr, all, traits};
    const auto further = [own = *this](const Tensors& inputs, const DecodingPoint& point, Tensors&) {
      const int64_t end = point.past + inputs[0].size(1);
      const Tensor places = point.positions(inputs[0].size(1), inputs[0].device());
      if (own.max_positions && end > *own.max_positions) own.check(places.max().item<int64_t>() + 1);
      return Tensors{places};
    };
    return decoding_layer(nullptr, all, further, traits);
  }
  void onnx(OnnxForm& form) const {
    if (!padding_idx) {
      return form.give(form.op("Unsqueeze", {onnx_range(form, form.input(), 1), form.ints({0})}));
    }
    const auto padding = static_cast<double>(*padding_idx);
    const OnnxValue is_padding = form.op("Equal", {form.input(), form.number(padding, form.dtype())});
    const OnnxValue counted = form.cast(form.op("Not", {is_padding}), at::kLong);
    const OnnxValue sums = form.op("CumSum", {counted, form.number(1, at::kLong)});
    form.give(form.op("Add", {form.op("Mul", {sums, counted}), form.number(padding, at::kLong)}));
  }

 private:
  /// The position of a text's first token.
  int64_t first() const { return padding_idx ? *padding_idx + 1 : 0; }

  void check(int64_t length) const {
    TORCH_CHECK(!max_positions || first() + length <= *max_positions, "a sequence has ", length,
                " tokens, but the model has positions for ", *max_positions - first(), "; cut the sequences off there");
  }

  Tensor of(const Tensor& ids) const {
    const int64_t length = ids.size(1);
    check(length);
    if (!padding_idx) return at::arange(length, ids.options().dtype(at::kLong)).unsqueeze(0);
    const Tensor counted = (ids != *padding_idx).to(at::kLong);
    return counted.cumsum(1) * counted + *padding_idx;
  }
};

/// As transformers' models that classify texts by a decoder choose it.
struct LastToken {
  std::optional<int64_t> padding;
  static void describe(Fields<LastToken>& f) {
    f.optional("padding", &LastToken::padding)
        .at_least(0)
        .doc("the second input holds token ids, of which these are padding; null: it is an attention mask, 0 there");
  }
  Layer build(const LayerInputs& in) const {
    in.require_inputs(1, 2);
    const at::IntArrayRef features = in.shape(0);
    if (features.size() != 3) throw LayerError("it reads features [N, T, C], not " + shape_text(features));
    if (in.examples.size() > 1 && in.shape(1) != features.slice(0, 2)) {
      throw LayerError("its second input is [N, T], like the features " + shape_text(features) + ", not " +
                       shape_text(in.shape(1)));
    }
    if (padding && in.examples.size() < 2) throw LayerError("padding needs token ids: inputs: [features, input_ids]");
    Operation::Traits traits;
    traits.view = in.examples.size() < 2;
    return {nullptr, [own = *this](const Tensors& inputs) -> Tensors { return {own.of(inputs)}; }, traits};
  }
  void onnx(OnnxForm& form) const {
    if (form.num_inputs() < 2) {
      return form.give(form.op("Gather", {form.input(), form.number(-1, at::kLong)}, {{"axis", 1}}));
    }
    const OnnxValue& marks = form.input(1);
    const OnnxValue counts =
        padding ? form.op("Not", {form.op("Equal", {marks, form.number(static_cast<double>(*padding), form.dtype(1))})})
                : form.op("Greater", {marks, form.number(0, form.dtype(1))});
    const OnnxValue places = form.op("Mul", {form.cast(counts, at::kLong), onnx_range(form, form.input(), 1)});
    const OnnxValue last = onnx_reduce(form, "ReduceMax", places, {1}, true);  // [N, 1]
    form.give(form.op("GatherND", {form.input(), last}, {{"batch_dims", 1}}));
  }

 private:
  /// A text of nothing but padding has its first token.
  Tensor of(const Tensors& inputs) const {
    const Tensor& features = inputs[0];
    if (inputs.size() < 2) return features.select(1, -1);
    const Tensor counts = padding ? inputs[1] != *padding : inputs[1] > 0;
    const Tensor places = at::arange(features.size(1), inputs[1].options().dtype(at::kLong)) * counts;
    const Tensor last = places.amax(1).view({-1, 1, 1}).expand({-1, 1, features.size(2)});
    return features.gather(1, last).squeeze(1);
  }
};

}  // namespace

void add_positions(LayerRegistry& layers) {
  layers.add<RotaryEmbedding>("RotaryEmbedding",
                              "rotates the heads of each of its inputs [N, T, C] by their positions; a last input of "
                              "integers [N, T] gives the positions");
  layers.add<LastToken>("LastToken",
                        "the features [N, C] of each text's last token that is not padding; inputs: [features, "
                        "attention_mask], or token ids with `padding`, or features alone, without padding");
  layers.add<PositionIds>("PositionIds", "the position of each token of [N, T], from 0: [1, T]");
}

}  // namespace trainrun
