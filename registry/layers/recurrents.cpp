#include <torch/nn/modules/rnn.h>

#include "registry/layer.h"

namespace trainrun {
namespace {

struct LSTM {
  int64_t hidden_size = 0;
  int64_t num_layers = 1;
  bool bias = true;
  bool batch_first = false;
  double dropout = 0;
  bool bidirectional = false;
  int64_t proj_size = 0;
  std::optional<int64_t> input_size;
  static void describe(Fields<LSTM>& f) {
    f.required("hidden_size", &LSTM::hidden_size).at_least(1).doc("size of the state");
    f.optional("num_layers", &LSTM::num_layers).at_least(1).doc("LSTMs stacked on each other");
    f.optional("bias", &LSTM::bias).doc("learned biases of the gates");
    f.optional("batch_first", &LSTM::batch_first)
        .doc("sequences are [N, T, C], as batches of data are; else [T, N, C]");
    f.optional("dropout", &LSTM::dropout).at_least(0).at_most(1).doc("between stacked LSTMs, while training");
    f.optional("bidirectional", &LSTM::bidirectional).doc("a second LSTM reads the sequence backwards");
    f.optional("proj_size", &LSTM::proj_size).at_least(0).doc("size of the projected state; 0: none");
    f.optional("input_size", &LSTM::input_size).at_least(1).doc("features at each time; inferred");
  }
  void check(Checker& checker) const {
    if (proj_size >= hidden_size) checker.fail("proj_size", "must be smaller than hidden_size");
  }
  Layer build(const LayerInputs& in) const {
    in.require_dims(3, 3, batch_first ? "[N, T, C]" : "[T, N, C]");
    torch::nn::LSTMOptions options(in.infer("input_size", input_size, -1), hidden_size);
    options.num_layers(num_layers).bias(bias).batch_first(batch_first).dropout(dropout);
    options.bidirectional(bidirectional).proj_size(proj_size);
    torch::nn::LSTM lstm(options);
    return {lstm.ptr(), [lstm](const Tensors& inputs) mutable -> Tensors {
              auto [sequence, state] = lstm->forward(inputs[0]);
              return {sequence, std::get<0>(state), std::get<1>(state)};
            }};
  }
};

}  // namespace

void add_recurrents(LayerRegistry& layers) {
  layers.add<LSTM>("LSTM", "long short-term memory; outputs: the sequence, the last state h, the last cell state c");
}

}  // namespace trainrun
