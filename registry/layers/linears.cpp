#include "registry/layers/linears.h"

#include <ATen/ops/embedding_renorm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/nn/functional/embedding.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <limits>

#include "registry/graph/casting.h"
#include "registry/graph/positions.h"
#include "registry/kernels/embedding.h"
#include "registry/kernels/linear.h"
#include "registry/kinds/changes_parameters.h"
#include "registry/kinds/communicator.h"
#include "registry/layers/onnx_parts.h"
#include "registry/layers/parts.h"

namespace trainrun {

namespace {

/// A product, which lies in memory in the order of its dimensions whatever the order of what is multiplied.
class Product : public CastingOperation, public LaysOutInOrder {
 public:
  using CastingOperation::CastingOperation;
};

/// A layer that multiplies by weights, for which autocast casts what is multiplied.
Layer layer_of_product(std::shared_ptr<torch::nn::Module> module, Layer::Function function, const LayerInputs& in) {
  Layer layer;
  layer.state = std::move(module);
  layer.operation = std::make_shared<Product>(std::move(function), in.traits_along(-1));
  return layer;
}

}  // namespace

void Linear::describe(Fields<Linear>& f) {
  f.required("out_features", &Linear::out_features).at_least(1).doc("size of the output's last dimension");
  f.optional("bias", &Linear::bias).doc("adds a learned vector");
  f.optional("in_features", &Linear::in_features).at_least(1).doc("size of the input's last dimension; inferred");
}

Layer Linear::build(const LayerInputs& in) const {
  const int64_t features = in.infer("in_features", in_features, -1);
  const torch::nn::Linear linear(torch::nn::LinearOptions(features, out_features).bias(bias));
  const auto forward = [linear](const Tensors& inputs) -> Tensors {
    return {kernels::linear(inputs[0], linear->weight, linear->bias)};
  };
  Layer layer = layer_of_product(linear.ptr(), forward, in);
  layer.tie = tie_of_weight(linear.ptr());
  layer.adaptable = AdaptableWeight();
  return layer;
}

void Linear::onnx(OnnxForm& form) const {
  const OnnxValue weight = form.state("weight");
  const OnnxValue own_bias = onnx_state_or_none(form, "bias");
  if (form.rank() != 2) return form.give(onnx_linear(form, form.input(), weight, own_bias));
  OnnxValues inputs = {form.input(), weight};
  if (!own_bias.name.empty()) inputs.push_back(own_bias);
  form.give(form.op("Gemm", inputs, {{"transB", 1}}));
}

namespace {

/// A Linear whose weight lies the other way round, as GPT-2's checkpoints have it.
struct TransposedLinearModule : torch::nn::Module {
  TransposedLinearModule(int64_t in_features, int64_t out_features, bool has_bias) {
    weight = register_parameter("weight", at::empty({in_features, out_features}));
    if (has_bias) bias = register_parameter("bias", at::zeros({out_features}));
    torch::nn::init::normal_(weight, 0, 0.02);
  }
  at::Tensor weight;
  at::Tensor bias;
};

}  // namespace

void TransposedLinear::describe(Fields<TransposedLinear>& f) {
  using T = TransposedLinear;
  f.required("out_features", &T::out_features).at_least(1).doc("size of the output's last dimension");
  f.optional("bias", &T::bias).doc("adds a learned vector");
  f.optional("in_features", &T::in_features).at_least(1).doc("size of the input's last dimension; inferred");
}

Layer TransposedLinear::build(const LayerInputs& in) const {
  const int64_t features = in.infer("in_features", in_features, -1);
  const auto module = std::make_shared<TransposedLinearModule>(features, out_features, bias);
  const auto forward = [module](const Tensors& inputs) -> Tensors {
    return {kernels::activated_linear(inputs[0], {module->weight, module->bias, true})};
  };
  Layer layer = layer_of_product(module, forward, in);
  layer.adaptable = AdaptableWeight{.form = AdaptableWeight::Form::kInOut};
  return layer;
}

void TransposedLinear::onnx(OnnxForm& form) const {
  const OnnxValue product = form.op("MatMul", {form.input(), form.state("weight")});
  form.give(bias ? form.op("Add", {product, form.state("bias")}) : product);
}

namespace {

struct Bilinear {
  int64_t out_features = 0;
  bool bias = true;
  std::optional<int64_t> in1_features;
  std::optional<int64_t> in2_features;
  static void describe(Fields<Bilinear>& f) {
    f.required("out_features", &Bilinear::out_features).at_least(1).doc("size of the output's last dimension");
    f.optional("bias", &Bilinear::bias).doc("adds a learned vector");
    f.optional("in1_features", &Bilinear::in1_features)
        .at_least(1)
        .doc("size of the last dimension of the first input; inferred");
    f.optional("in2_features", &Bilinear::in2_features)
        .at_least(1)
        .doc("size of the last dimension of the second input; inferred");
  }
  Layer build(const LayerInputs& in) const {
    in.require_inputs(2, 2);
    const int64_t in1 = in.infer("in1_features", in1_features, -1);
    LayerInputs second;
    second.examples = {in.examples[1]};
    const int64_t in2 = second.infer("in2_features", in2_features, -1);
    in.note_inferred("in2_features");
    const torch::nn::Bilinear bilinear(torch::nn::BilinearOptions(in1, in2, out_features).bias(bias));
    return {
        bilinear.ptr(),
        [module = bilinear.ptr()](const Tensors& inputs) -> Tensors { return {module->forward(inputs[0], inputs[1])}; },
        in.traits_along(-1)};
  }
  /// x1 times all matrices beside each other, [N, …, out, in2], and each of these times x2.
  void onnx(OnnxForm& form) const {
    const at::Tensor& weight = form.state_tensor("weight");  // [out, in1, in2]
    const OnnxValue beside = form.transpose(form.state("weight"), {1, 0, 2});
    const OnnxValue products = form.op("MatMul", {form.input(0), form.reshape(beside, {weight.size(1), -1})});
    std::vector<int64_t> shape(static_cast<size_t>(form.rank() - 1), 0);
    shape.insert(shape.end(), {weight.size(0), weight.size(2)});
    const OnnxValue second = form.op("Unsqueeze", {form.input(1), form.ints({-1})});
    const OnnxValue sums = form.op("MatMul", {form.reshape(products, shape), second});
    const OnnxValue result = form.op("Squeeze", {sums, form.ints({-1})});
    form.give(bias ? form.op("Add", {result, form.state("bias")}) : result);
  }
};

/// What Embedding and EmbeddingBag have in common.
struct EmbeddingTable {
  int64_t num_embeddings = 0;
  int64_t embedding_dim = 0;
  std::optional<int64_t> padding_idx;
  std::optional<double> max_norm;
  double norm_type = 2;
  bool scale_grad_by_freq = false;

  template <class Own>
  static void describe_table(Fields<Own>& f) {
    f.required("num_embeddings", &Own::num_embeddings).at_least(1).doc("size of the vocabulary");
    f.required("embedding_dim", &Own::embedding_dim).at_least(1).doc("size of each vector");
    f.optional("padding_idx", &Own::padding_idx).doc("the index whose vector stays zero");
    f.optional("max_norm", &Own::max_norm)
        .greater_than(0)
        .doc("vectors with a larger norm are scaled down to it, in the table, before training looks them up");
    f.optional("norm_type", &Own::norm_type).greater_than(0).doc("the p of that p-norm");
    f.optional("scale_grad_by_freq", &Own::scale_grad_by_freq)
        .doc("divide gradients by the number of times the index occurs in the batch");
  }
  void check(Checker& checker) const {
    if (padding_idx && (*padding_idx >= num_embeddings || *padding_idx < -num_embeddings)) {
      checker.fail("padding_idx", "must be within num_embeddings, " + std::to_string(num_embeddings));
    }
  }
  /// `padding_idx`, counted from the first row.
  std::optional<int64_t> padding_row() const {
    return padding_idx && *padding_idx < 0 ? std::optional(*padding_idx + num_embeddings) : padding_idx;
  }
  /// The rows of the table that input 0 names, [N, …, embedding_dim], no longer than `max_norm`.
  OnnxValue rows_form(OnnxForm& form) const {
    OnnxValue rows = form.op("Gather", {form.state("weight"), form.input()});
    if (!max_norm) return rows;
    constexpr double kLeast = 1e-7;  // as at::embedding_renorm_
    const OnnxValue norm = onnx_norm(form, rows, norm_type, -1, true);
    const OnnxValue scale = form.op("Div", {form.number(*max_norm), onnx_with(form, "Add", norm, kLeast)});
    const OnnxValue shortened = form.op("Mul", {rows, scale});
    return form.op("Where", {onnx_with(form, "Greater", norm, *max_norm), shortened, rows});
  }
  template <class Options>
  Options options(const LayerInputs& in) const {
    const at::ScalarType dtype = in.examples.at(0).scalar_type();
    if (dtype != at::kLong && dtype != at::kInt) {
      throw LayerError("it looks up integer indices, but the input is " + std::string(at::toString(dtype)));
    }
    Options options(num_embeddings, embedding_dim);
    options.padding_idx(padding_row()).max_norm(max_norm).norm_type(norm_type).scale_grad_by_freq(scale_grad_by_freq);
    return options;
  }
};

/// LibTorch's Embedding or EmbeddingBag, which rescales vectors of its table as they are looked up (`max_norm`).
template <class Lookup>
class TableModule : public Lookup, public SpansRanks, public ChangesParameters {
 public:
  template <class Options>
  explicit TableModule(const Options& options) : Lookup(options) {
    max_norm_ = std::exchange(this->options.max_norm(), std::nullopt);  // LibTorch's own lookup leaves the table alone
  }
  void span(Communicator& others, bool) override { ranks_ = &others; }
  bool changes_parameters() const override { return max_norm_.has_value(); }

  /// The table, in which vectors that are about to be looked up are rescaled. In a pass that trains, those that any rank
  /// looks up are, on every rank, as one process does that has the whole batch. Another pass, such as an evaluation, has
  /// a copy: it may come after a checkpoint, and what is trained must not depend on it.
  at::Tensor table(const at::Tensor& indices) {
    if (!max_norm_) return this->weight;
    const bool trains = c10::GradMode::is_enabled();
    const c10::AutoGradMode no_gradients(false);
    at::Tensor rows = indices.contiguous();
    if (trains && ranks_) rows = looked_up_anywhere(indices);
    at::Tensor result = trains ? this->weight : this->weight.clone();
    at::embedding_renorm_(result, rows, *max_norm_, this->options.norm_type());
    return result;
  }

 private:
  /// Collective.
  at::Tensor looked_up_anywhere(const at::Tensor& indices) const {
    const at::Tensor counts = at::zeros({this->weight.size(0)}, this->weight.options().dtype(at::kFloat));
    counts.index_fill_(0, indices.reshape(-1).to(at::kLong), 1);
    ranks_->sum(counts);
    return counts.nonzero().view(-1);
  }

  Communicator* ranks_ = nullptr;  // null: this process is alone
  std::optional<double> max_norm_;
};

struct EmbeddingModule : TableModule<torch::nn::EmbeddingImpl> {
  using TableModule::TableModule;
  // NOLINTNEXTLINE(bugprone-derived-method-shadowing-base-method): what a layer of this module calls
  at::Tensor forward(const at::Tensor& indices) {
    const auto& padding = options.padding_idx();
    if (options.scale_grad_by_freq()) {
      return torch::nn::functional::detail::embedding(indices, table(indices), padding, std::nullopt,
                                                      options.norm_type(), true, options.sparse());
    }
    return kernels::embedding(table(indices), indices, padding.value_or(-1));
  }
};

struct Embedding : EmbeddingTable {
  AdaptableWeight rows() const {
    AdaptableWeight rows = {.form = AdaptableWeight::Form::kRows};
    if (const auto padding = padding_row()) rows.padding = *padding;
    return rows;
  }
  static void describe(Fields<Embedding>& f) { describe_table(f); }
  Layer build(const LayerInputs& in) const {
    const torch::nn::ModuleHolder<EmbeddingModule> table(options<torch::nn::EmbeddingOptions>(in));
    Layer layer = layer_of(table, {.spans_ranks = max_norm.has_value(),
                                   .position_wise = true,
                                   .capturable = !max_norm,
                                   .half_precision = !max_norm});
    layer.tie = tie_of_weight(table.ptr());
    layer.adaptable = max_norm ? std::nullopt : std::optional(rows());
    return layer;
  }
  void onnx(OnnxForm& form) const { form.give(rows_form(form)); }
};

/// torch.nn.EmbeddingBag; LibTorch 2.11 draws the vector at padding_idx too, where Python leaves zeros.
struct EmbeddingBagModule : TableModule<torch::nn::EmbeddingBagImpl> {
  explicit EmbeddingBagModule(const torch::nn::EmbeddingBagOptions& options) : TableModule(options) {
    const c10::AutoGradMode no_gradients(false);
    if (options.padding_idx()) weight.select(0, *options.padding_idx()).zero_();
  }
  at::Tensor forward(const at::Tensor& bags, const at::Tensor& weights) {
    return torch::nn::functional::detail::embedding_bag(bags, table(bags), {}, std::nullopt, options.norm_type(),
                                                        options.scale_grad_by_freq(), options.mode(), options.sparse(),
                                                        weights, options.include_last_offset(), options.padding_idx());
  }
};

struct EmbeddingBag : EmbeddingTable {
  std::string mode = "mean";
  static void describe(Fields<EmbeddingBag>& f) {
    describe_table(f);
    f.optional("mode", &EmbeddingBag::mode).one_of({"sum", "mean", "max"}).doc("how the vectors of a bag are combined");
    f.rule({.when = {the("mode").is("max")},
            .all = {the("scale_grad_by_freq").is(false)},
            .at = "scale_grad_by_freq",
            .message = "is not available for mode: max"});
  }
  Layer build(const LayerInputs& in) const {
    in.require_inputs(1, 2);
    in.require_dims(2, 2, "bags of indices [N, T]");
    auto options = this->options<torch::nn::EmbeddingBagOptions>(in);
    if (mode == "sum") options.mode(torch::kSum);
    if (mode == "max") options.mode(torch::kMax);
    if (in.num_own() == 2 && mode != "sum") throw LayerError("weights of a bag's indices need mode: sum");
    if (in.num_own() == 2 && in.shape(1) != in.shape(0)) {
      throw LayerError("each index needs a weight, but indices are " + shape_text(in.shape(0)) + ", weights " +
                       shape_text(in.shape(1)));
    }
    const auto module = std::make_shared<EmbeddingBagModule>(options);
    return {module,
            [module](const Tensors& inputs) -> Tensors {
              return {module->forward(inputs[0], inputs.size() == 2 ? inputs[1] : at::Tensor())};
            },
            {.spans_ranks = max_norm.has_value()}};
  }
  void onnx(OnnxForm& form) const {
    OnnxValue rows = rows_form(form);
    if (form.num_inputs() == 2) rows = form.op("Mul", {rows, form.op("Unsqueeze", {form.input(1), form.ints({-1})})});
    const OnnxValue counts = counts_form(form);  // [N, T, 1] float; no value: all do
    form.give(mode == "max" ? largest_form(form, rows, counts) : sum_form(form, rows, counts));
  }

 private:
  /// 1 for indices that are not padding.
  OnnxValue counts_form(OnnxForm& form) const {
    const auto padding = padding_row();
    if (!padding) return {};
    const OnnxValue is_padding =
        form.op("Equal", {form.input(), form.number(static_cast<double>(*padding), form.dtype())});
    const OnnxValue counts = form.cast(form.op("Not", {is_padding}), at::kFloat);
    return form.op("Unsqueeze", {counts, form.ints({-1})});
  }
  OnnxValue sum_form(OnnxForm& form, const OnnxValue& rows, const OnnxValue& counts) const {
    const bool all = counts.name.empty();
    if (all) return onnx_reduce(form, mode == "sum" ? "ReduceSum" : "ReduceMean", rows, {1}, false);
    OnnxValue sum = onnx_reduce(form, "ReduceSum", form.op("Mul", {rows, counts}), {1}, false);
    if (mode == "sum") return sum;
    const OnnxValue number = onnx_reduce(form, "ReduceSum", counts, {1}, false);
    return form.op("Div", {sum, form.op("Max", {number, form.number(1)})});  // of nothing but padding: 0
  }
  static OnnxValue largest_form(OnnxForm& form, const OnnxValue& rows, const OnnxValue& counts) {
    if (counts.name.empty()) return onnx_reduce(form, "ReduceMax", rows, {1}, false);
    const OnnxValue is_counted = onnx_with(form, "Greater", counts, 0);
    const OnnxValue lowest = form.number(std::numeric_limits<float>::lowest());
    const OnnxValue largest = onnx_reduce(form, "ReduceMax", form.op("Where", {is_counted, rows, lowest}), {1}, false);
    const OnnxValue any = onnx_with(form, "Greater", onnx_reduce(form, "ReduceSum", counts, {1}, false), 0);
    return form.op("Where", {any, largest, form.number(0)});
  }
};

}  // namespace

Part linear_part(const at::Tensor& input, int64_t out_features, bool bias) {
  return part_of("Linear", Linear{out_features, bias, std::nullopt}, {input});
}

void add_linears(LayerRegistry& layers) {
  layers.add<Linear>("Linear", "affine map of the last dimension, [N, …, in] to [N, …, out]");
  layers.add<TransposedLinear>("TransposedLinear",
                               "a Linear whose weight is [in, out], which Hugging Face calls Conv1D");
  layers.add<Bilinear>("Bilinear", "x1 A x2 + b of two inputs, [N, …, in1] and [N, …, in2] to [N, …, out]");
  layers.add<Embedding>("Embedding", "a learned vector for each index, [N, …] int64 to [N, …, embedding_dim]");
  layers.add<EmbeddingBag>("EmbeddingBag",
                           "sum, mean or maximum of the learned vectors of a bag of indices, [N, T] int64 to [N, "
                           "embedding_dim]; a second input [N, T] weights them");
}

}  // namespace trainrun
