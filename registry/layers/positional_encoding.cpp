#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <torch/nn/init.h>
#include <torch/nn/module.h>

#include <cmath>

#include "registry/graph/decoding.h"
#include "registry/kinds/layer.h"
#include "registry/layers/onnx_parts.h"

namespace trainrun {
namespace {

using at::Tensor;

/// [max_len, features] in double precision.
Tensor sinusoids(int64_t max_len, int64_t features) {
  const auto options = at::TensorOptions(at::kDouble);
  const Tensor rates =
      (at::arange(0, features, 2, options) * (-std::log(10000.0) / static_cast<double>(features))).exp();
  const Tensor angles = at::arange(max_len, options).unsqueeze(1) * rates;
  return at::stack({angles.sin(), angles.cos()}, -1).flatten(1).slice(1, 0, features);
}

struct PositionalEncodingModule : torch::nn::Module {
  PositionalEncodingModule(bool learned, int64_t max_len, int64_t features) {
    if (learned) {
      weight = register_parameter("weight", at::empty({max_len, features}));
      torch::nn::init::normal_(weight, 0, 0.02);
      return;
    }
    exact = sinusoids(max_len, features);
  }

  /// [max_len, C], as `like` is of type and device.
  Tensor table(const Tensor& like) {
    if (weight.defined()) return weight;
    if (!rounded.defined() || rounded.scalar_type() != like.scalar_type() || rounded.device() != like.device()) {
      rounded = exact.to(like.options());
    }
    return rounded;
  }

  Tensor weight;   // learned
  Tensor exact;    // sinusoidal, in double precision; no part of the state
  Tensor rounded;  // the same, as it was last used
};

struct PositionalEncoding {
  std::string encoding = "sinusoidal";
  int64_t max_len = 5000;
  double dropout = 0.1;
  bool batch_first = false;
  std::optional<int64_t> d_model;
  static void describe(Fields<PositionalEncoding>& f) {
    using P = PositionalEncoding;
    f.optional("encoding", &P::encoding)
        .one_of({"sinusoidal", "learned"})
        .doc("sines and cosines of wavelengths from 2 pi to 10000 * 2 pi, or a learned vector for each position");
    f.optional("max_len", &P::max_len).at_least(1).doc("the longest sequence that is allowed");
    f.optional("dropout", &P::dropout).at_least(0).at_most(1).doc("dropout of the sum, while training");
    f.optional("batch_first", &P::batch_first).doc("sequences are [N, T, C], as batches of data are; else [T, N, C]");
    f.optional("d_model", &P::d_model).at_least(1).doc("number of features; inferred");
  }
  Layer build(const LayerInputs& in) const {
    in.require_dims(3, 3, batch_first ? "[N, T, C]" : "[T, N, C]");
    const int64_t features = in.infer("d_model", d_model, 2);
    const auto module = std::make_shared<PositionalEncodingModule>(encoding == "learned", max_len, features);
    const Layer::Function function = [module, own = *this](const Tensors& inputs) -> Tensors {
      const int64_t length = inputs[0].size(own.batch_first ? 1 : 0);
      own.check_length(length);
      const Tensor positions = module->table(inputs[0]).slice(0, 0, length);
      const Tensor sum = inputs[0] + (own.batch_first ? positions : positions.unsqueeze(1));
      return {at::dropout(sum, own.dropout, module->is_training())};
    };
    const Operation::Traits traits = {.random = dropout > 0, .max_length = max_len};
    if (!batch_first) return {module, function, traits};
    const auto further = [module, own = *this](const Tensors& inputs, const DecodingPoint& point, Tensors&) -> Tensors {
      const Tensor places = point.positions(inputs[0].size(1), inputs[0].device());
      if (point.past + inputs[0].size(1) > own.max_len) own.check_length(places.max().item<int64_t>() + 1);
      return {inputs[0] + at::embedding(module->table(inputs[0]), places)};
    };
    return decoding_layer(module, function, further, traits);
  }
  void onnx(OnnxForm& form) const {
    const int64_t features = form.fixed_size(2);
    const OnnxValue table =
        form.has("weight") ? form.state("weight") : form.constant(sinusoids(max_len, features).to(at::kFloat));
    const OnnxValue length = form.sizes(form.input(), batch_first ? 1 : 0, batch_first ? 2 : 1);
    OnnxValue positions = form.op("Slice", {table, form.ints({0}), length, form.ints({0})});
    if (!batch_first) positions = form.op("Unsqueeze", {positions, form.ints({1})});
    form.give(form.op("Add", {form.input(), positions}));
  }

 private:
  void check_length(int64_t length) const {
    TORCH_CHECK(length <= max_len, "the sequence has ", length, " positions, max_len is ", max_len);
  }
};

}  // namespace

void add_positional_encodings(LayerRegistry& layers) {
  layers.add<PositionalEncoding>("PositionalEncoding", "adds a vector for its position to each element of a sequence");
}

}  // namespace trainrun
