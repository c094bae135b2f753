#include <ATen/TracerMode.h>
#include <ATen/ops/zeros_like.h>
#include <torch/nn/modules/rnn.h>

#include "registry/kinds/layer.h"
#include "registry/layers/onnx_parts.h"

namespace trainrun {
namespace {

/// States to begin with, [states, N, size], for a trace: those that the module makes of its own accord would have the
/// traced number of samples in it, whatever the number to come.
at::Tensor zeros_of_trace(const at::Tensor& sequence, bool batch_first, int64_t states, int64_t size) {
  const at::Tensor one = at::zeros_like(sequence.select(batch_first ? 1 : 0, 0).slice(1, 0, 1));  // [N, 1]
  return one.unsqueeze(0).expand({states, -1, size}).contiguous();
}

/// torch.nn.RNN, GRU and LSTM: `Module` is LibTorch's. Without batch_first sequences are [T, N, C]; states are
/// [num_layers * directions, N, hidden_size], whichever it is.
template <class Module, class Options>
struct Recurrent {
  static constexpr bool kIsRNN = std::is_same_v<Module, torch::nn::RNN>;
  static constexpr bool kIsLSTM = std::is_same_v<Module, torch::nn::LSTM>;

  int64_t hidden_size = 0;
  int64_t num_layers = 1;
  std::string nonlinearity = "tanh";
  bool bias = true;
  bool batch_first = false;
  double dropout = 0;
  bool bidirectional = false;
  int64_t proj_size = 0;
  std::optional<int64_t> input_size;

  static void describe(Fields<Recurrent>& f) {
    f.required("hidden_size", &Recurrent::hidden_size).at_least(1).doc("size of the state");
    f.optional("num_layers", &Recurrent::num_layers).at_least(1).doc("recurrent layers stacked on each other");
    if constexpr (kIsRNN) {
      f.optional("nonlinearity", &Recurrent::nonlinearity)
          .one_of({"tanh", "relu"})
          .doc("activation that computes the new state");
    }
    f.optional("bias", &Recurrent::bias).doc(kIsRNN ? "learned biases" : "learned biases of the gates");
    f.optional("batch_first", &Recurrent::batch_first)
        .doc("sequences are [N, T, C], as batches of data are; else [T, N, C]");
    f.optional("dropout", &Recurrent::dropout).at_least(0).at_most(1).doc("between stacked layers, while training");
    f.optional("bidirectional", &Recurrent::bidirectional).doc("a second layer reads the sequence backwards");
    if constexpr (kIsLSTM) {
      f.optional("proj_size", &Recurrent::proj_size).at_least(0).doc("size of the projected state; 0: none");
    }
    f.optional("input_size", &Recurrent::input_size).at_least(1).doc("features at each time; inferred");
  }

  void check(Checker& checker) const {
    if (proj_size >= hidden_size) checker.fail("proj_size", "must be smaller than hidden_size");
  }

  Layer build(const LayerInputs& in) const {
    in.require_dims(3, 3, batch_first ? "[N, T, C]" : "[T, N, C]");
    Options options(in.infer("input_size", input_size, -1), hidden_size);
    options.num_layers(num_layers).bias(bias).batch_first(batch_first).dropout(dropout).bidirectional(bidirectional);
    if constexpr (kIsRNN) {
      if (nonlinearity == "relu") options.nonlinearity(torch::kReLU);
    }
    if constexpr (kIsLSTM) options.proj_size(proj_size);
    Module module(options);
    check_states(in);
    const int64_t states = num_layers * (bidirectional ? 2 : 1);
    const int64_t size = proj_size > 0 ? proj_size : hidden_size;
    return {module.ptr(),
            [module, states, size, batch_first = batch_first,
             hidden_size = hidden_size](const Tensors& given) mutable -> Tensors {
              Tensors inputs = given;
              if (inputs.size() == 1 && at::tracer::impl::is_dispatch_enabled()) {
                inputs.push_back(zeros_of_trace(inputs[0], batch_first, states, size));
                if (kIsLSTM) inputs.push_back(zeros_of_trace(inputs[0], batch_first, states, hidden_size));
              }
              if constexpr (kIsLSTM) {
                using States = std::tuple<at::Tensor, at::Tensor>;
                auto [sequence, state] = inputs.size() == 3 ? module->forward(inputs[0], States{inputs[1], inputs[2]})
                                                            : module->forward(inputs[0]);
                return {sequence, std::get<0>(state), std::get<1>(state)};
              } else {
                auto [sequence, state] = module->forward(inputs[0], inputs.size() == 2 ? inputs[1] : at::Tensor());
                return {sequence, state};
              }
            },
            {.random = dropout > 0}};
  }

  void onnx(OnnxForm& form) const {
    if (proj_size > 0) form.refuse("ONNX's LSTM has no projected state; write proj_size: 0");
    OnnxValue sequence = form.input();  // [T, N, C]
    if (batch_first) sequence = form.transpose(sequence, {1, 0, 2});
    OnnxValues last_h;
    OnnxValues last_c;
    for (int64_t layer = 0; layer < num_layers; ++layer) {
      const OnnxValues outputs = layer_form(form, sequence, layer);
      // [T, directions, N, hidden] to [T, N, directions * hidden]
      sequence = form.reshape(form.transpose(outputs[0], {0, 2, 1, 3}), {0, 0, -1});
      last_h.push_back(outputs[1]);
      if (kIsLSTM) last_c.push_back(outputs[2]);
    }
    form.give(batch_first ? form.transpose(sequence, {1, 0, 2}) : sequence);
    form.give(form.op("Concat", last_h, {{"axis", 0}}));
    if (kIsLSTM) form.give(form.op("Concat", last_c, {{"axis", 0}}));
  }

 private:
  int64_t directions() const { return bidirectional ? 2 : 1; }

  /// ONNX's outputs of one layer, of both directions.
  OnnxValues layer_form(OnnxForm& form, const OnnxValue& sequence, int64_t layer) const {
    const auto beside = [&](const std::string& of) {  // of both directions, [directions, …]
      OnnxValues parts;
      for (int64_t i = 0; i < directions(); ++i) {
        const std::string end = "_l" + std::to_string(layer) + (i == 1 ? "_reverse" : "");
        parts.push_back(of == "bias"
                            ? form.op("Concat", {gates_form(form, "bias_ih" + end), gates_form(form, "bias_hh" + end)},
                                      {{"axis", 0}})
                            : gates_form(form, of + end));
        parts.back() = form.op("Unsqueeze", {parts.back(), form.ints({0})});
      }
      return form.op("Concat", parts, {{"axis", 0}});
    };
    OnnxValues inputs = {sequence, beside("weight_ih"), beside("weight_hh"), {}, {}};
    if (bias) inputs[3] = beside("bias");
    for (size_t i = 1; i < form.num_inputs(); ++i) {  // the states to begin with, of all layers
      inputs.push_back(form.op("Slice", {form.input(i), form.ints({layer * directions()}),
                                         form.ints({(layer + 1) * directions()}), form.ints({0})}));
    }
    OnnxAttributes attributes = {{"hidden_size", hidden_size},
                                 {"direction", bidirectional ? "bidirectional" : "forward"}};
    if (kIsRNN) {
      const std::string function = nonlinearity == "relu" ? "Relu" : "Tanh";
      attributes.emplace_back("activations", std::vector<std::string>(static_cast<size_t>(directions()), function));
    }
    if (!kIsRNN && !kIsLSTM) attributes.emplace_back("linear_before_reset", 1);
    return form.ops(kIsRNN ? "RNN" : kIsLSTM ? "LSTM" : "GRU", inputs, kIsLSTM ? 3 : 2, attributes);
  }

  /// The parameter with its gates in ONNX's order: of an LSTM input, output, forget, cell; of a GRU update, reset, new.
  static OnnxValue gates_form(OnnxForm& form, const std::string& name) {
    if (kIsRNN) return form.state(name);
    const size_t count = kIsLSTM ? 4 : 3;
    const OnnxValues own =
        form.ops("Split", {form.state(name)}, count, {{"axis", 0}, {"num_outputs", static_cast<int64_t>(count)}});
    const OnnxValues turned =
        kIsLSTM ? OnnxValues{own[0], own.at(3), own[1], own[2]} : OnnxValues{own[1], own[0], own[2]};
    return form.op("Concat", turned, {{"axis", 0}});
  }

  /// The state to begin with may be a further input (an LSTM's two): what an encoder gives, say.
  void check_states(const LayerInputs& in) const {
    const size_t states = kIsLSTM ? 2 : 1;
    if (in.num_own() != 1 && in.num_own() != 1 + states) {
      throw LayerError(std::string("it reads the sequence, or the sequence and ") +
                       (kIsLSTM ? "the states h and c" : "the state h") + " to begin with, but gets " +
                       std::to_string(in.num_own()) + " inputs");
    }
    const int64_t batch = in.shape()[batch_first ? 0 : 1];
    for (size_t i = 1; i < in.num_own(); ++i) {
      const int64_t size = i == 1 && proj_size > 0 ? proj_size : hidden_size;
      const std::vector<int64_t> expected = {num_layers * (bidirectional ? 2 : 1), batch, size};
      if (in.shape(i) != at::IntArrayRef(expected)) {
        throw LayerError("its state is " + at::str(at::IntArrayRef(expected)) + ", but " + at::str(in.shape(i)) +
                         " is given");
      }
    }
  }
};

}  // namespace

void add_recurrents(LayerRegistry& layers) {
  namespace nn = torch::nn;
  layers.add<Recurrent<nn::RNN, nn::RNNOptions>>(
      "RNN", "Elman's recurrent network; outputs: the sequence, the last state h; inputs: the sequence, a first h");
  layers.add<Recurrent<nn::GRU, nn::GRUOptions>>(
      "GRU", "gated recurrent unit; outputs: the sequence, the last state h; inputs: the sequence, a first h");
  layers.add<Recurrent<nn::LSTM, nn::LSTMOptions>>(
      "LSTM",
      "long short-term memory; outputs: the sequence, the last state h, the last cell state c; inputs: the sequence, a "
      "first h and c");
}

}  // namespace trainrun
