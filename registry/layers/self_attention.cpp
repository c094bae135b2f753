#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/where.h>
#include <torch/nn/module.h>

#include <limits>

#include "registry/graph/decoding.h"
#include "registry/layer.h"
#include "registry/layers/key_value_cache.h"

// What language models attend with, without weights of its own: the Linears that make queries, keys and values are
// layers of the model, so that patterns over names, adapters and fusions find them.

namespace trainrun {
namespace {

using at::Tensor;

/// [N, T, heads * D] to [N, heads, T, D].
Tensor heads_of(const Tensor& x, int64_t num_heads) {
  return x.unflatten(-1, {num_heads, x.size(-1) / num_heads}).transpose(1, 2);
}

struct ScaledDotProductAttention {
  int64_t num_heads = 0;
  std::optional<int64_t> num_key_value_heads;
  double dropout = 0;
  bool is_causal = false;
  std::optional<int64_t> sliding_window;
  std::optional<double> scale;
  static void describe(Fields<ScaledDotProductAttention>& f) {
    using S = ScaledDotProductAttention;
    f.required("num_heads", &S::num_heads).at_least(1).doc("number of parts of the features that attend separately");
    f.optional("num_key_value_heads", &S::num_key_value_heads)
        .at_least(1)
        .doc("heads of keys and values, each of which serves as many heads of queries; null: num_heads");
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
    return {mode, std::move(function), {.random = dropout > 0}};
  }

 private:
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
    return decoding_layer(mode, std::move(function), further, {.random = dropout > 0});
  }

  /// true where a key is looked at.
  static Tensor is_seen(const Tensor& given) {
    TORCH_CHECK(!given.is_floating_point(), "the attention mask holds integers, or truth values of what is padding");
    return given.scalar_type() == at::kBool ? given.logical_not() : given != 0;
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
    const Tensor key = repeated(heads_of(inputs[1], key_heads()));
    const Tensor value = repeated(heads_of(inputs[2], key_heads()));
    const Tensor mask = this->mask(query, key.size(2), inputs.size() == 4 ? inputs[3] : Tensor());
    const bool plainly_causal = is_causal && !mask.defined();
    const Tensor mixed = at::scaled_dot_product_attention(
        query, key, value, mask.defined() ? std::optional(mask) : std::nullopt, p, plainly_causal, scale);
    return mixed.transpose(1, 2).flatten(2);
  }

  /// Each head of [N, heads, T, D] as often as queries share it.
  Tensor repeated(const Tensor& heads) const {
    const int64_t times = num_heads / key_heads();
    if (times == 1) return heads;
    return heads.unsqueeze(2).expand({-1, -1, times, -1, -1}).flatten(1, 2);
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
    if (is_causal && (given.defined() || windowed)) {
      Tensor causal = at::ones({num_queries, num_keys}, query.options().dtype(at::kBool)).tril();
      if (windowed) causal = causal.triu(1 - *sliding_window);
      seen = seen.defined() ? seen.logical_and(causal) : causal.view({1, 1, num_queries, num_keys});
    }
    if (!seen.defined()) return {};
    const double never = query.scalar_type() == at::kHalf ? -65504 : std::numeric_limits<float>::lowest() / 2;
    return seen.logical_not().to(query.scalar_type()) * never;
  }
};

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
  static void describe(Fields<RotaryEmbedding>& f) {
    using R = RotaryEmbedding;
    f.required("head_dim", &R::head_dim).at_least(2).doc("features of a head; even");
    f.optional("base", &R::base).greater_than(0).doc("wavelengths go from 2 pi to about base * 2 pi (rope_theta)");
    f.optional("scaling", &R::scaling)
        .one_of({"none", "linear", "llama3"})
        .doc("for sequences longer than a model was trained with: positions divided by factor, or Llama 3.1's rule");
    f.optional("factor", &R::factor).at_least(1).doc("how much longer the sequences are");
    f.optional("low_freq_factor", &R::low_freq_factor)
        .greater_than(0)
        .doc("llama3: waves that fit fewer times than this into the original length are scaled by factor");
    f.optional("high_freq_factor", &R::high_freq_factor)
        .greater_than(0)
        .doc("llama3: waves that fit more often than this into the original length stay as they are");
    f.optional("original_max_position_embeddings", &R::original_max_position_embeddings)
        .at_least(1)
        .doc("llama3: the length that the model was trained with");
    f.rule({.when = {the("scaling").is("none")},
            .all = {the("factor").is(1)},
            .at = "factor",
            .message = "needs scaling: linear or llama3"});
  }
  void check(Checker& checker) const {
    if (head_dim % 2 != 0) checker.fail("head_dim", "must be even, is " + std::to_string(head_dim));
    if (scaling == "llama3" && high_freq_factor <= low_freq_factor) {
      checker.fail("high_freq_factor", "must be greater than low_freq_factor");
    }
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
    return decoding_layer(
        module,
        [module, own = *this, has_positions](const Tensors& inputs) -> Tensors {
          return own.rotate(*module, inputs, has_positions);
        },
        further);
  }

 private:
  /// The last of `inputs` are the positions.
  Tensors rotate_by(const Tensors& inputs) const {
    const Tensor& first = inputs[0];
    const Tensor angles = angles_of(inputs.back().to(exact_type(first)));
    return turned(inputs, inputs.size() - 1, angles.cos().to(first.scalar_type()),
                  angles.sin().to(first.scalar_type()));
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
      module.cosines = angles.cos().to(first.scalar_type());
      module.sines = angles.sin().to(first.scalar_type());
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
    const Tensor exponents = at::arange(0, head_dim, 2, positions.options()) / static_cast<double>(head_dim);
    Tensor rates = at::full({}, base, positions.options()).pow(exponents).reciprocal();
    if (scaling == "linear") rates = rates / factor;
    if (scaling == "llama3") rates = llama3(rates);
    const Tensor half = positions.unsqueeze(-1) * rates;
    return at::cat({half, half}, -1);
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
};

struct PositionIds {
  std::optional<int64_t> padding_idx;
  std::optional<int64_t> max_positions;
  static void describe(Fields<PositionIds>& f) {
    f.optional("padding_idx", &PositionIds::padding_idx)
        .at_least(0)
        .doc("the token of padding, which has this position, too; the others count from the next one, as in RoBERTa");
    f.optional("max_positions", &PositionIds::max_positions)
        .at_least(1)
        .doc("number of positions that there are; longer sequences are refused");
  }
  Layer build(const LayerInputs& in) const {
    in.require_inputs(1, 1);
    in.require_dims(2, 2, "token ids [N, T]");
    const auto all = [own = *this](const Tensors& inputs) -> Tensors { return {own.of(inputs[0])}; };
    if (padding_idx) return {nullptr, all};
    return decoding_layer(nullptr, all, [own = *this](const Tensors& inputs, const DecodingPoint& point, Tensors&) {
      const int64_t end = point.past + inputs[0].size(1);
      const Tensor places = point.positions(inputs[0].size(1), inputs[0].device());
      if (own.max_positions && end > *own.max_positions) own.check(places.max().item<int64_t>() + 1, 0);
      return Tensors{places};
    });
  }

 private:
  void check(int64_t length, int64_t first) const {
    TORCH_CHECK(!max_positions || first + length <= *max_positions, "a sequence has ", length,
                " tokens, but the model has positions for ", *max_positions - first, "; cut the sequences off there");
  }

  Tensor of(const Tensor& ids) const {
    const int64_t length = ids.size(1);
    check(length, padding_idx ? *padding_idx + 1 : 0);
    if (!padding_idx) return at::arange(length, ids.options().dtype(at::kLong)).unsqueeze(0);
    const Tensor counted = (ids != *padding_idx).to(at::kLong);
    return counted.cumsum(1) * counted + *padding_idx;
  }
};

}  // namespace

void add_self_attention(LayerRegistry& layers) {
  layers.add<ScaledDotProductAttention>(
      "ScaledDotProductAttention",
      "attention of several heads without weights: queries, keys and values [N, T, C], and perhaps an attention mask "
      "[N, T] of integers, to [N, T, C]");
  layers.add<RotaryEmbedding>(
      "RotaryEmbedding",
      "turns the heads of each of its inputs [N, T, C] by their positions; a last input of integers [N, T] says those");
  layers.add<PositionIds>("PositionIds", "the position of each token of [N, T], from 0: [1, T]");
}

}  // namespace trainrun
