#include <torch/nn/modules/rnn.h>

#include "registry/kinds/layer.h"
#include "registry/layers/onnx_parts.h"

namespace trainrun {
namespace {

/// torch.nn.RNNCell, GRUCell and LSTMCell: one step. `Module` is LibTorch's.
template <class Module>
struct RecurrentCell {
  static constexpr bool kIsRNN = std::is_same_v<Module, torch::nn::RNNCell>;
  static constexpr bool kIsLSTM = std::is_same_v<Module, torch::nn::LSTMCell>;

  int64_t hidden_size = 0;
  bool bias = true;
  std::string nonlinearity = "tanh";
  std::optional<int64_t> input_size;

  static void describe(Fields<RecurrentCell>& f) {
    f.required("hidden_size", &RecurrentCell::hidden_size).at_least(1).doc("size of the state");
    f.optional("bias", &RecurrentCell::bias).doc("learned biases");
    if constexpr (kIsRNN) {
      f.optional("nonlinearity", &RecurrentCell::nonlinearity)
          .one_of({"tanh", "relu"})
          .doc("activation that computes the new state");
    }
    f.optional("input_size", &RecurrentCell::input_size).at_least(1).doc("features; inferred");
  }

  Layer build(const LayerInputs& in) const {
    in.require_dims(2, 2, "[N, C]");
    const int64_t features = in.infer("input_size", input_size, -1);
    check_states(in);
    if constexpr (kIsLSTM) {
      Module module(torch::nn::LSTMCellOptions(features, hidden_size).bias(bias));
      return {module.ptr(), [module](const Tensors& inputs) mutable -> Tensors {
                using States = std::tuple<at::Tensor, at::Tensor>;
                auto [h, c] = inputs.size() == 3 ? module->forward(inputs[0], States{inputs[1], inputs[2]})
                                                 : module->forward(inputs[0]);
                return {h, c};
              }};
    } else {
      Module module = make(features);
      return {module.ptr(), [module](const Tensors& inputs) mutable -> Tensors {
                return {module->forward(inputs[0], inputs.size() == 2 ? inputs[1] : at::Tensor())};
              }};
    }
  }

  void onnx(OnnxForm& form) const {
    const auto product = [&](const OnnxValue& x, const std::string& of) {
      return onnx_linear(form, x, form.state("weight_" + of), onnx_state_or_none(form, "bias_" + of));
    };
    const OnnxValue from_x = product(form.input(0), "ih");
    const OnnxValue h = form.num_inputs() > 1 ? form.input(1) : zeros_form(form);
    const OnnxValue from_h = product(h, "hh");
    if constexpr (kIsRNN) {
      form.give(form.op(nonlinearity == "relu" ? "Relu" : "Tanh", {form.op("Add", {from_x, from_h})}));
    } else if constexpr (kIsLSTM) {
      give_lstm(form, form.op("Add", {from_x, from_h}), form.num_inputs() > 1 ? form.input(2) : h);
    } else {
      give_gru(form, from_x, from_h, h);
    }
  }

 private:
  /// [N, hidden_size]
  OnnxValue zeros_form(OnnxForm& form) const {
    const OnnxValue sizes =
        form.op("Concat", {form.sizes(form.input(), 0, 1), form.ints({hidden_size})}, {{"axis", 0}});
    return form.op("Expand", {form.number(0), sizes});
  }

  static OnnxValues parts_of(OnnxForm& form, const OnnxValue& gates, int64_t count) {
    return form.ops("Split", {gates}, static_cast<size_t>(count), {{"axis", -1}, {"num_outputs", count}});
  }

  static void give_lstm(OnnxForm& form, const OnnxValue& gates, const OnnxValue& c) {
    const OnnxValues parts = parts_of(form, gates, 4);  // input, forget, cell, output
    const OnnxValue kept = form.op("Mul", {form.op("Sigmoid", {parts[1]}), c});
    const OnnxValue added = form.op("Mul", {form.op("Sigmoid", {parts[0]}), form.op("Tanh", {parts[2]})});
    const OnnxValue cell = form.op("Add", {kept, added});
    form.give(form.op("Mul", {form.op("Sigmoid", {parts[3]}), form.op("Tanh", {cell})}));
    form.give(cell);
  }

  static void give_gru(OnnxForm& form, const OnnxValue& from_x, const OnnxValue& from_h, const OnnxValue& h) {
    const OnnxValues x = parts_of(form, from_x, 3);  // reset, update, new
    const OnnxValues of_h = parts_of(form, from_h, 3);
    const OnnxValue reset = form.op("Sigmoid", {form.op("Add", {x[0], of_h[0]})});
    const OnnxValue update = form.op("Sigmoid", {form.op("Add", {x[1], of_h[1]})});
    const OnnxValue fresh = form.op("Tanh", {form.op("Add", {x[2], form.op("Mul", {reset, of_h[2]})})});
    const OnnxValue change = form.op("Mul", {update, form.op("Sub", {h, fresh})});
    form.give(form.op("Add", {fresh, change}));
  }

  Module make(int64_t features) const {
    if constexpr (kIsRNN) {
      auto options = torch::nn::RNNCellOptions(features, hidden_size).bias(bias);
      if (nonlinearity == "relu") options.nonlinearity(torch::kReLU);
      return Module(options);
    } else {
      return Module(torch::nn::GRUCellOptions(features, hidden_size).bias(bias));
    }
  }

  /// The state to go on from may be a further input (an LSTM's two); zeros without it.
  void check_states(const LayerInputs& in) const {
    const size_t states = kIsLSTM ? 2 : 1;
    if (in.num_own() != 1 && in.num_own() != 1 + states) {
      throw LayerError(std::string("it reads [N, C], or that and ") + (kIsLSTM ? "the states h and c" : "the state h") +
                       ", but gets " + std::to_string(in.num_own()) + " inputs");
    }
    for (size_t i = 1; i < in.num_own(); ++i) {
      if (in.shape(i).size() == 2 && in.shape(i)[1] == hidden_size && in.shape(i)[0] == in.shape()[0]) continue;
      throw LayerError("its state is [N, " + std::to_string(hidden_size) + "], but " + shape_text(in.shape(i)) +
                       " is given");
    }
  }
};

}  // namespace

void add_recurrent_cells(LayerRegistry& layers) {
  layers.add<RecurrentCell<torch::nn::RNNCell>>(
      "RNNCell", "one step of an Elman network, [N, C] to the state h [N, hidden_size]; inputs: x, the state before");
  layers.add<RecurrentCell<torch::nn::GRUCell>>(
      "GRUCell",
      "one step of a gated recurrent unit, [N, C] to the state h [N, hidden_size]; inputs: x, the state before");
  layers.add<RecurrentCell<torch::nn::LSTMCell>>("LSTMCell",
                                                 "one step of a long short-term memory, [N, C] to the states h and c "
                                                 "[N, hidden_size]; inputs: x, the states h and c before");
}

}  // namespace trainrun
