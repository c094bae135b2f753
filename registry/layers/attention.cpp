#include "registry/layers/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/init.h>

#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "registry/graph/casting.h"
#include "registry/graph/memory_order.h"
#include "registry/graph/positions.h"
#include "registry/kernels/linear.h"
#include "registry/layers/key_value_cache.h"
#include "registry/layers/onnx_attention.h"
#include "registry/layers/onnx_parts.h"
#include "registry/layers/parts.h"
#include "registry/layers/scaled_attention.h"

namespace trainrun {

using at::Tensor;

Attention::Attention(const AttentionOptions& options) : options_(options) {
  const int64_t embed_dim = options.embed_dim;
  if (embed_dim % options.num_heads != 0) {
    throw LayerError(std::to_string(options.num_heads) + " heads do not divide the " + std::to_string(embed_dim) +
                     " features of the input");
  }
  const int64_t kdim = options.kdim.value_or(embed_dim);
  const int64_t vdim = options.vdim.value_or(embed_dim);
  packed_ = kdim == embed_dim && vdim == embed_dim;
  if (packed_) {
    in_proj_weight_ = register_parameter("in_proj_weight", at::empty({3 * embed_dim, embed_dim}));
  } else {
    q_proj_weight_ = register_parameter("q_proj_weight", at::empty({embed_dim, embed_dim}));
    k_proj_weight_ = register_parameter("k_proj_weight", at::empty({embed_dim, kdim}));
    v_proj_weight_ = register_parameter("v_proj_weight", at::empty({embed_dim, vdim}));
  }
  if (options.bias) in_proj_bias_ = register_parameter("in_proj_bias", at::zeros({3 * embed_dim}));
  if (options.add_bias_kv) {
    bias_k_ = register_parameter("bias_k", at::empty({1, 1, embed_dim}));
    bias_v_ = register_parameter("bias_v", at::empty({1, 1, embed_dim}));
  }
  // Python draws the weights in this order.
  const torch::nn::LinearOptions output = torch::nn::LinearOptions(embed_dim, embed_dim).bias(options.bias);
  out_proj_ = register_module("out_proj", torch::nn::Linear(output));
  for (Tensor& weight :
       {std::ref(in_proj_weight_), std::ref(q_proj_weight_), std::ref(k_proj_weight_), std::ref(v_proj_weight_)}) {
    if (weight.defined()) torch::nn::init::xavier_uniform_(weight);
  }
  if (options.bias) torch::nn::init::zeros_(out_proj_->bias);
  if (options.add_bias_kv) {
    torch::nn::init::xavier_normal_(bias_k_);
    torch::nn::init::xavier_normal_(bias_v_);
  }
}

void Attention::check(const Tensor& query, const Tensor& key, const Tensor& value) const {
  const char* layout = options_.batch_first ? "[N, T, C]" : "[T, N, C]";
  for (const Tensor& tensor : {query, key, value}) {
    TORCH_CHECK(tensor.dim() == 3, "attention reads ", layout, ", not ", tensor.sizes());
  }
  const auto check_features = [](const char* what, const Tensor& tensor, int64_t expected) {
    TORCH_CHECK(tensor.size(2) == expected, what, " has ", tensor.size(2), " features, expected ", expected);
  };
  check_features("the query", query, options_.embed_dim);
  check_features("the key", key, options_.kdim.value_or(options_.embed_dim));
  check_features("the value", value, options_.vdim.value_or(options_.embed_dim));
  const int64_t batch = options_.batch_first ? 0 : 1;
  TORCH_CHECK(query.size(batch) == key.size(batch), "as ", layout, " the query's batch is ", query.size(batch),
              ", the key's ", key.size(batch));
  TORCH_CHECK(key.sizes().slice(0, 2) == value.sizes().slice(0, 2),
              "key and value are of different lengths: ", key.sizes(), " and ", value.sizes());
}

/// The three projections, each [T, N, embed_dim]; one product for those that read the same tensor.
std::vector<Tensor> Attention::project(const Tensor& query, const Tensor& key, const Tensor& value) const {
  const bool biased = in_proj_bias_.defined();
  const auto biases = biased ? in_proj_bias_.chunk(3) : std::vector<Tensor>(3);
  if (!packed_) {
    return {kernels::linear(query, q_proj_weight_, biases[0]), kernels::linear(key, k_proj_weight_, biases[1]),
            kernels::linear(value, v_proj_weight_, biases[2])};
  }
  if (query.is_same(key) && key.is_same(value)) {
    return kernels::linear(query, in_proj_weight_, in_proj_bias_).chunk(3, -1);
  }
  const auto weights = in_proj_weight_.chunk(3);
  return {kernels::linear(query, weights[0], biases[0]), kernels::linear(key, weights[1], biases[1]),
          kernels::linear(value, weights[2], biases[2])};
}

/// What is added to the scores [N, heads, L, S], of fewer dimensions where it is the same along some; undefined for
/// nothing.
Tensor Attention::mask(const Tensor& like, const Scores& scores, const Tensor& key_padding_mask, bool is_causal) {
  constexpr double kNever = -std::numeric_limits<double>::infinity();
  Tensor mask;
  const int64_t num_keys = scores.keys;
  if (is_causal) mask = at::full({scores.queries, num_keys}, kNever, like.options()).triu(1);
  if (!key_padding_mask.defined()) return mask;
  const bool fits =
      key_padding_mask.dim() == 2 && key_padding_mask.size(0) == scores.batch && key_padding_mask.size(1) == num_keys;
  TORCH_CHECK(fits, "the padding mask of ", num_keys, " keys is [N, ", num_keys, "], not ", key_padding_mask.sizes());
  Tensor padding = key_padding_mask;
  if (!padding.is_floating_point()) {
    const Tensor ignored = padding.scalar_type() == at::kBool ? padding : padding == 0;
    padding = at::zeros(padding.sizes(), like.options()).masked_fill(ignored, kNever);
  }
  padding = padding.to(like.scalar_type()).view({scores.batch, 1, 1, num_keys});
  return mask.defined() ? mask + padding : padding;
}

Tensor Attention::attend_self(const Tensor& x, const Tensor& key_padding_mask, bool is_causal,
                              OutputOrder order) const {
  const int64_t time = options_.batch_first ? 1 : 0;
  const Tensor packed = kernels::linear(x, in_proj_weight_, in_proj_bias_);
  AttentionTerms terms{{}, is_training() ? options_.dropout : 0, is_causal, {}};
  if (key_padding_mask.defined()) {
    terms.mask = mask(packed, {x.size(1 - time), x.size(time), x.size(time)}, key_padding_mask, is_causal);
    terms.is_causal = false;
  }
  auto mixed = kernels::packed_attention(packed, options_.num_heads, time, terms);
  if (!mixed) {
    std::vector<Tensor> heads = packed.chunk(3, -1);
    for (Tensor& part : heads) {  // to [N, heads, T, C / heads]
      part = part.unflatten(-1, {options_.num_heads, options_.embed_dim / options_.num_heads});
      part = time == 1 ? part.transpose(1, 2) : part.permute({1, 2, 0, 3});
    }
    mixed = scaled_attention(heads[0], heads[1], heads[2], terms);
    mixed = (time == 1 ? mixed->transpose(1, 2) : mixed->permute({2, 0, 1, 3})).flatten(2);
  }
  // In memory the output is [T, N, C], as Python's: a dropout draws its numbers in the order of memory.
  const bool is_turned = time == 1 && is_training() && order == OutputOrder::kAsPython;
  if (is_turned) mixed = mixed->transpose(0, 1).contiguous();
  const Tensor y = kernels::linear(*mixed, out_proj_->weight, out_proj_->bias);
  return is_turned ? y.transpose(0, 1) : y;
}

Tensor Attention::forward(Tensor query, Tensor key, Tensor value, const Tensor& key_padding_mask, bool is_causal,
                          OutputOrder order) {
  check(query, key, value);
  const int64_t num_added = (options_.add_bias_kv ? 1 : 0) + (options_.add_zero_attn ? 1 : 0);
  if (packed_ && num_added == 0 && query.is_same(key) && key.is_same(value)) {
    return attend_self(query, key_padding_mask, is_causal, order);
  }
  if (options_.batch_first) {  // [T, N, C] within, as in Python
    const bool same_key = key.is_same(query);
    const bool same_value = value.is_same(key);
    query = query.transpose(0, 1);
    key = same_key ? query : key.transpose(0, 1);
    value = same_value ? key : value.transpose(0, 1);
  }
  std::vector<Tensor> projected = project(query, key, value);
  const int64_t batch = query.size(1);
  const int64_t embed_dim = options_.embed_dim;
  Tensor mask;
  if (key_padding_mask.defined() || (is_causal && num_added > 0)) {
    mask = Attention::mask(projected[0], {batch, query.size(0), key.size(0)}, key_padding_mask, is_causal);
    is_causal = false;
    if (num_added > 0) mask = at::constant_pad_nd(mask, {0, num_added});  // what is added, all may look at
  }
  const auto add_keys = [&](Tensor& keys, const Tensor& more) { keys = at::cat({keys, more.expand({1, batch, -1})}); };
  for (const size_t i : {1, 2}) {
    if (options_.add_bias_kv) add_keys(projected[i], i == 1 ? bias_k_ : bias_v_);
    if (options_.add_zero_attn) add_keys(projected[i], at::zeros({1, 1, embed_dim}, projected[i].options()));
  }
  for (Tensor& tensor : projected) {  // [T, N, C] to [N, heads, T, C / heads]
    tensor = tensor.unflatten(-1, {options_.num_heads, embed_dim / options_.num_heads}).permute({1, 2, 0, 3});
  }
  const double dropout = is_training() ? options_.dropout : 0;
  const Tensor mixed = scaled_attention(projected[0], projected[1], projected[2], {mask, dropout, is_causal});
  const Tensor output = kernels::linear(mixed.permute({2, 0, 1, 3}).reshape({query.size(0), batch, embed_dim}),
                                        out_proj_->weight, out_proj_->bias);
  return options_.batch_first ? output.transpose(0, 1) : output;
}

Tensor Attention::forward_further(const Tensor& query, const Tensor& key, const Tensor& value,
                                  const Tensor& key_padding_mask, const DecodingPoint& point,
                                  std::vector<Tensor>& memory) const {
  check(query, key, value);
  std::vector<Tensor> projected = project(query, key, value);
  for (Tensor& tensor : projected) {  // [N, T, C] to [N, heads, T, C / heads]
    tensor = tensor.unflatten(-1, {options_.num_heads, options_.embed_dim / options_.num_heads}).transpose(1, 2);
  }
  NextTokens next = {projected[0], projected[1], projected[2], {}, std::nullopt, std::nullopt};
  if (key_padding_mask.defined()) {
    TORCH_CHECK(!key_padding_mask.is_floating_point(), "a padding mask of numbers that are added is not for decoding");
    next.seen = key_padding_mask.scalar_type() == at::kBool ? key_padding_mask.logical_not() : key_padding_mask != 0;
  }
  const Tensor mixed = attend_further(next, point, memory);
  return at::linear(mixed.transpose(1, 2).flatten(2), out_proj_->weight, out_proj_->bias);
}

namespace {

/// inputs[i] of a query, or of query, key, value and perhaps a key padding mask.
const Tensor& input_of(const Tensors& inputs, size_t i) { return inputs[inputs.size() == 1 ? 0 : i]; }
Tensor mask_of(const Tensors& inputs) { return inputs.size() == 4 ? inputs[3] : Tensor(); }

/// What the operations below have in common.
struct Attending {
  std::shared_ptr<Attention> module;
  bool is_causal = false;
  Operation::Traits traits = {};
  OutputOrder order = OutputOrder::kAsPython;

  Tensors run(const Tensors& inputs) const {
    return {module->forward(inputs[0], input_of(inputs, 1), input_of(inputs, 2), mask_of(inputs), is_causal, order)};
  }
  Attending in_any_order() const { return {module, is_causal, traits, OutputOrder::kAny}; }
};

class AttentionOperation : public Operation, public CastsInputs, public KeepsMemoryOrder, public ReadsPositions {
 public:
  explicit AttentionOperation(Attending attending) : attending_(std::move(attending)) {}
  Tensors run(const Tensors& inputs) const override { return attending_.run(inputs); }
  Reads reads(size_t num_inputs) const override {
    if (num_inputs != 4 || !attending_.module->is_batch_first()) return {};
    return {{Read::kAsOutput, Read::kMasked, Read::kMasked, Read::kAll}, 3};
  }
  Traits traits() const override { return attending_.traits; }
  std::shared_ptr<const Operation> in_any_order() const override {
    return std::make_shared<AttentionOperation>(attending_.in_any_order());
  }

 private:
  Attending attending_;
};

/// A causal attention, which can continue where it stopped.
class DecodingAttention : public DecodingOperation, public CastsInputs, public KeepsMemoryOrder {
 public:
  explicit DecodingAttention(Attending attending) : attending_(std::move(attending)) {}
  Tensors run(const Tensors& inputs) const override { return attending_.run(inputs); }
  Tensors run_further(const Tensors& inputs, const DecodingPoint& point, Tensors& memory) const override {
    return {attending_.module->forward_further(inputs[0], input_of(inputs, 1), input_of(inputs, 2), mask_of(inputs),
                                               point, memory)};
  }
  Traits traits() const override { return attending_.traits; }
  std::shared_ptr<const Operation> in_any_order() const override {
    return std::make_shared<DecodingAttention>(attending_.in_any_order());
  }

 private:
  Attending attending_;
};

struct MultiheadAttention {
  int64_t num_heads = 0;
  double dropout = 0;
  bool bias = true;
  bool add_bias_kv = false;
  bool add_zero_attn = false;
  std::optional<int64_t> kdim;
  std::optional<int64_t> vdim;
  bool batch_first = false;
  bool is_causal = false;
  std::optional<int64_t> embed_dim;
  static void describe(Fields<MultiheadAttention>& f) {
    using M = MultiheadAttention;
    f.required("num_heads", &M::num_heads).at_least(1).doc("number of heads, into which the features are divided");
    f.optional("dropout", &M::dropout).at_least(0).at_most(1).doc("dropout of the attention weights, while training");
    f.optional("bias", &M::bias).doc("learned biases of the projections");
    f.optional("add_bias_kv", &M::add_bias_kv).doc("add a learned key and value");
    f.optional("add_zero_attn", &M::add_zero_attn).doc("add a key and a value of zeros");
    f.optional("kdim", &M::kdim).at_least(1).doc("features of the key; inferred");
    f.optional("vdim", &M::vdim).at_least(1).doc("features of the value; inferred");
    f.optional("batch_first", &M::batch_first).doc("sequences are [N, T, C], as batches of data are; else [T, N, C]");
    f.optional("is_causal", &M::is_causal).doc("the query at position i sees the keys up to i only");
    f.optional("embed_dim", &M::embed_dim).at_least(1).doc("features of the query and of the output; inferred");
  }
  Layer build(const LayerInputs& in) const {
    if (in.num_own() == 2 || in.num_own() > 4) {
      throw LayerError(
          "it reads a query, or query, key and value, or query, key, value and key padding mask, but gets " +
          std::to_string(in.num_own()) + " inputs");
    }
    in.require_dims(3, 3, batch_first ? "[N, T, C]" : "[T, N, C]");
    AttentionOptions options;
    options.embed_dim = in.infer("embed_dim", embed_dim, 2);
    options.kdim = features("kdim", kdim, in, 1);
    options.vdim = features("vdim", vdim, in, 2);
    options.num_heads = num_heads;
    options.dropout = dropout;
    options.bias = bias;
    options.add_bias_kv = add_bias_kv;
    options.add_zero_attn = add_zero_attn;
    options.batch_first = batch_first;
    const auto module = std::make_shared<Attention>(options);
    const bool goes_on = is_causal && batch_first && !add_bias_kv && !add_zero_attn && !has_added_mask(in);
    const Operation::Traits traits = {.random = dropout > 0, .half_precision = true};
    Layer layer;
    layer.state = module;
    const Attending attending{module, is_causal, traits};
    if (goes_on) {
      layer.operation = std::make_shared<DecodingAttention>(attending);
    } else {
      layer.operation = std::make_shared<AttentionOperation>(attending);
    }
    return layer;
  }

  void onnx(OnnxForm& form) const {
    OnnxValues parts = projections_form(form);  // of query, key and value: [N, T, C]
    const OnnxValue mask = mask_form(form, parts[0], parts[1]);
    for (const size_t i : {1, 2}) {
      if (add_bias_kv) parts[i] = longer_form(form, parts[i], form.state(i == 1 ? "bias_k" : "bias_v"));
      if (add_zero_attn) parts[i] = longer_form(form, parts[i], form.number(0));
    }
    for (OnnxValue& part : parts) part = onnx_heads(form, part, num_heads);
    const int64_t head_dim = form.fixed_size(2) / num_heads;
    const double scale = 1 / std::sqrt(static_cast<double>(head_dim));
    const OnnxValue mixed =
        onnx_joined_heads(form, onnx_attended(form, {parts[0], parts[1], parts[2], 1, scale, mask}));
    const OnnxValue output =
        onnx_linear(form, mixed, form.state("out_proj.weight"), onnx_state_or_none(form, "out_proj.bias"));
    form.give(batch_first ? output : form.transpose(output, {1, 0, 2}));
  }

 private:
  OnnxValues projections_form(OnnxForm& form) const {
    const auto thirds = [&](const char* name) {
      return form.ops("Split", {form.state(name)}, 3, {{"axis", 0}, {"num_outputs", 3}});
    };
    const OnnxValues weights =
        form.has("in_proj_weight")
            ? thirds("in_proj_weight")
            : OnnxValues{form.state("q_proj_weight"), form.state("k_proj_weight"), form.state("v_proj_weight")};
    const OnnxValues biases = bias ? thirds("in_proj_bias") : OnnxValues(3);
    OnnxValues parts;
    for (size_t i = 0; i < weights.size(); ++i) {
      OnnxValue x = form.input(form.num_inputs() == 1 ? 0 : i);
      if (!batch_first) x = form.transpose(x, {1, 0, 2});
      parts.push_back(onnx_linear(form, x, weights[i], biases[i]));
    }
    return parts;
  }

  /// Keys or values [N, S, C], and one more, which is the same for each sample.
  static OnnxValue longer_form(OnnxForm& form, const OnnxValue& x, const OnnxValue& more) {
    const OnnxValue sizes =
        form.op("Concat", {form.sizes(x, 0, 1), form.ints({1}), form.sizes(x, 2, 3)}, {{"axis", 0}});
    return form.op("Concat", {x, form.op("Expand", {more, sizes})}, {{"axis", 1}});
  }

  /// What Attention::mask says, of keys before any are added.
  OnnxValue mask_form(OnnxForm& form, const OnnxValue& query, const OnnxValue& key) const {
    const OnnxValue never = form.number(-std::numeric_limits<double>::infinity());
    OnnxValue mask;
    if (is_causal) {
      mask = form.op("Where", {onnx_causal(form, query, key, 1, std::nullopt), form.number(0), never});
    }
    if (form.num_inputs() == 4) {
      OnnxValue padding = form.input(3);
      if (!at::isFloatingType(form.dtype(3))) {
        padding = form.op("Where", {onnx_seen(form, padding, form.dtype(3)), form.number(0), never});
      }
      padding = form.op("Unsqueeze", {padding, form.ints({1, 2})});
      mask = mask.name.empty() ? padding : form.op("Add", {mask, padding});
    }
    const int64_t num_added = (add_bias_kv ? 1 : 0) + (add_zero_attn ? 1 : 0);
    if (mask.name.empty() || num_added == 0) return mask;
    return form.op("Pad", {mask, form.ints({0, num_added}), form.number(0), form.ints({-1})});
  }

  /// Whether the mask holds numbers that are added to the scores.
  static bool has_added_mask(const LayerInputs& in) {
    return in.num_own() == 4 && at::isFloatingType(in.examples[3].scalar_type());
  }
  /// Features of input `i`, or of the query where that is the only one.
  static int64_t features(const std::string& parameter, const std::optional<int64_t>& given, const LayerInputs& in,
                          size_t i) {
    LayerInputs one;
    one.examples = {in.examples[in.num_own() == 1 ? 0 : i]};
    in.note_inferred(parameter);
    return one.infer(parameter, given, -1);
  }
};

}  // namespace

Part attention_part(const Tensor& query, const AttentionOptions& options, bool is_causal) {
  MultiheadAttention attention;
  attention.num_heads = options.num_heads;
  attention.dropout = options.dropout;
  attention.bias = options.bias;
  attention.add_bias_kv = options.add_bias_kv;
  attention.add_zero_attn = options.add_zero_attn;
  attention.batch_first = options.batch_first;
  attention.is_causal = is_causal;
  return part_of("MultiheadAttention", attention, {query});
}

void add_attentions(LayerRegistry& layers) {
  layers.add<MultiheadAttention>(
      "MultiheadAttention", "attention of several heads; inputs: query, or query, key, value and a key padding mask");
}

}  // namespace trainrun
