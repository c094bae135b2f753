#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <functional>
#include <mutex>
#include <numeric>

#include "registry/layers/attention.h"
#include "registry/layers/parts.h"

// torch.nn.TransformerEncoderLayer, TransformerDecoderLayer and the stacks of them, as Python has them, each as a graph
// of registered layers; LibTorch's own lack batch_first, norm_first and bias, and leave the random generator elsewhere.
// Source: Vaswani et al. 2017, "Attention Is All You Need"; norm_first: Xiong et al. 2020, "On Layer Normalization in
// the Transformer Architecture".

namespace trainrun {
namespace {

using at::Tensor;

struct TransformerOptions {
  int64_t nhead = 0;
  int64_t dim_feedforward = 2048;
  double dropout = 0.1;
  std::string activation = "relu";
  double layer_norm_eps = 1e-5;
  bool batch_first = false;
  bool norm_first = false;
  bool bias = true;
  bool is_causal = false;
  bool memory_is_causal = false;
  std::optional<int64_t> d_model;
};

/// The parts of a layer, which are made once, and the graphs of them for places that read more or fewer masks.
class TransformerLayer {
 public:
  /// `example`: of the sequence that flows in. The parts are made in the order in which PyTorch draws weights.
  TransformerLayer(const TransformerOptions& options, bool is_decoder, const Tensor& example)
      : is_decoder_(is_decoder), norm_first_(options.norm_first) {
    const int64_t features = example.size(2);
    const Tensor hidden =
        at::empty({example.size(0), example.size(1), options.dim_feedforward}, example.options().device(at::kMeta));
    AttentionOptions attention;
    attention.num_heads = options.nhead;
    attention.dropout = options.dropout;
    attention.bias = options.bias;
    attention.batch_first = options.batch_first;
    add("self_attn", attention_part(example, attention, options.is_causal), example);
    if (is_decoder) add("multihead_attn", attention_part(example, attention, options.memory_is_causal), example);
    add("linear1", linear_part(example, options.dim_feedforward, options.bias), hidden);
    add("activation", options.activation == "relu" ? relu_part(hidden) : gelu_part(hidden), hidden);
    add("dropout", dropout_part(hidden, options.dropout), hidden);
    add("linear2", linear_part(hidden, features, options.bias), example);
    for (const std::string number : {"1", "2", "3"}) {
      if (number == "3" && !is_decoder) break;
      add("norm" + number, layer_norm_part(example, options.layer_norm_eps, options.bias), example);
      add("dropout" + number, dropout_part(example, options.dropout), example);
      add("add" + number, add_part(example), example);
    }
  }

  std::shared_ptr<Graph> wire(const LayerInputs& in) const {
    GraphOfParts graph(in);
    for (const Made& made : parts_) graph.register_state(made.name, made.part.layer);
    const auto part = [&](const std::string& name, const std::vector<size_t>& inputs) {
      const Made& made = *std::find_if(parts_.begin(), parts_.end(), [&](const Made& m) { return m.name == name; });
      return graph.add(name, made.part, inputs, {made.output})[0];
    };
    /// `mask`: the slot that it has where it is given.
    const auto attend = [&](const std::string& name, size_t query, size_t key, size_t mask) {
      if (mask < in.examples.size()) return part(name, {query, key, key, mask});
      return query == key ? part(name, {query}) : part(name, {query, key, key});
    };
    /// x + inner(x), normalized after or, with norm_first, before.
    const auto residual = [&](const std::string& number, size_t x, const std::function<size_t(size_t)>& inner) {
      const size_t given = inner(norm_first_ ? part("norm" + number, {x}) : x);
      const size_t sum = part("add" + number, {x, part("dropout" + number, {given})});
      return norm_first_ ? sum : part("norm" + number, {sum});
    };
    const size_t padding = is_decoder_ ? 2 : 1;
    size_t x = residual("1", 0, [&](size_t y) { return attend("self_attn", y, y, padding); });
    if (is_decoder_) x = residual("2", x, [&](size_t y) { return attend("multihead_attn", y, 1, 3); });
    x = residual(is_decoder_ ? "3" : "2", x, [&](size_t y) {
      return part("linear2", {part("dropout", {part("activation", {part("linear1", {y})})})});
    });
    return graph.finish({x});
  }

  std::vector<Tensor> parameters() const {
    std::vector<Tensor> all;
    for (const Made& made : parts_) {
      if (!made.part.layer.state) continue;
      for (const Tensor& parameter : made.part.layer.state->parameters()) all.push_back(parameter);
    }
    return all;
  }

 private:
  struct Made {
    std::string name;
    Part part;
    Tensor output;  // an example
  };

  void add(const std::string& name, Part part, const Tensor& output) {
    parts_.push_back({name, std::move(part), output});
  }

  bool is_decoder_;
  bool norm_first_;
  std::vector<Made> parts_;
};

class TransformerStack {
 public:
  struct Options {
    int64_t num_layers = 1;
    bool norm = false;
    std::string type;           // of a layer
    nlohmann::json attributes;  // of each
  };

  TransformerStack(const TransformerOptions& options, Options own, bool is_decoder, const Tensor& example)
      : own_(std::move(own)), example_(example) {
    for (int64_t i = 0; i < own_.num_layers; ++i) {
      const auto make = [&] { return TransformerLayer(options, is_decoder, example); };
      layers_.push_back(i == 0 ? make() : copy_of_first(make));
    }
    if (own_.norm) norm_ = layer_norm_part(example, options.layer_norm_eps, options.bias);
  }

  std::shared_ptr<Graph> wire(const LayerInputs& in) const {
    std::vector<size_t> inputs(in.examples.size());
    std::iota(inputs.begin(), inputs.end(), size_t{0});
    GraphOfParts graph(in);
    size_t x = graph.add("layers", list(in, inputs), inputs, {example_})[0];
    if (norm_) x = graph.add("norm", *norm_, {x}, {example_})[0];
    return graph.finish({x});
  }

 private:
  /// The layers, one after the other. All of them read the masks, and a decoder's the memory.
  Part list(const LayerInputs& in, std::vector<size_t> inputs) const {
    GraphOfParts graph(in);
    nlohmann::json types = nlohmann::json::array();
    for (const TransformerLayer& layer : layers_) {
      const Part part = {own_.type, own_.attributes, layer.wire(in)};
      inputs[0] = graph.add(std::to_string(types.size()), part, inputs, {example_})[0];
      types.push_back(own_.type);
    }
    return {"Sequential", {{"layers", types}}, graph.finish({inputs[0]})};
  }

  /// Python's stack copies one layer: all begin with the same weights, and the generator is where the first left it.
  template <class Make>
  TransformerLayer copy_of_first(const Make& make) const {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const auto locked = [&](const auto& action) {
      const std::lock_guard<std::mutex> lock(generator.mutex());
      return action();
    };
    const Tensor state = locked([&] { return generator.get_state(); });
    TransformerLayer copy = make();
    locked([&] { generator.set_state(state); });
    const c10::AutoGradMode no_gradients(false);
    const auto from = layers_.front().parameters();
    const auto to = copy.parameters();
    for (size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
    return copy;
  }

  Options own_;
  Tensor example_;
  std::vector<TransformerLayer> layers_;
  std::optional<Part> norm_;
};

/// The layer for a place with these inputs, and for others that share it.
template <class Parts>
Layer wired(const std::shared_ptr<const Parts>& parts, const LayerInputs& in) {
  Layer layer(parts->wire(in));
  layer.rewire = [parts](const LayerInputs& other) { return wired(parts, other); };
  return layer;
}

/// The four of them.
template <bool kIsDecoder, bool kIsStack>
struct Transformer : TransformerOptions {
  int64_t num_layers = 1;
  bool norm = false;

  static void describe(Fields<Transformer>& f) {
    using T = Transformer;
    f.required("nhead", &T::nhead).at_least(1).doc("heads of the attention");
    if constexpr (kIsStack) {
      f.required("num_layers", &T::num_layers).at_least(1).doc("layers, one after the other");
      f.optional("norm", &T::norm).doc("a LayerNorm after the last layer; for norm_first");
    }
    f.optional("dim_feedforward", &T::dim_feedforward).at_least(1).doc("features between the two linear maps");
    f.optional("dropout", &T::dropout).at_least(0).at_most(1).doc("probability of a zero, while training");
    f.optional("activation", &T::activation).one_of({"relu", "gelu"}).doc("function between the two linear maps");
    f.optional("layer_norm_eps", &T::layer_norm_eps).at_least(0).doc("added to the variance");
    f.optional("batch_first", &T::batch_first).doc("sequences are [N, T, C], as batches of data are; else [T, N, C]");
    f.optional("norm_first", &T::norm_first)
        .doc("normalize the inputs of attention and linear maps, not their outputs");
    f.optional("bias", &T::bias).doc("learned biases of all maps and normalizations");
    f.optional(kIsDecoder ? "tgt_is_causal" : "is_causal", &T::is_causal)
        .doc("each position sees itself and those before it only");
    if constexpr (kIsDecoder) {
      f.optional("memory_is_causal", &T::memory_is_causal).doc("position i sees the memory up to i only");
    }
    f.optional("d_model", &T::d_model).at_least(1).doc("number of features; inferred");
  }

  Layer build(const LayerInputs& in) const {
    in.require_dims(3, 3, batch_first ? "[N, T, C]" : "[T, N, C]");
    if (kIsDecoder && (in.num_own() < 2 || in.num_own() > 4)) {
      throw LayerError(
          "it reads a sequence and the encoder's, and optionally the padding mask of the first or of both, but gets " +
          std::to_string(in.num_own()) + " inputs");
    }
    if (!kIsDecoder && in.num_own() > 2) {
      throw LayerError("it reads a sequence, and optionally its padding mask, but gets " +
                       std::to_string(in.num_own()) + " inputs");
    }
    in.infer("d_model", d_model, 2);
    const Tensor& example = in.examples[0];
    if constexpr (kIsStack) {
      using Single = Transformer<kIsDecoder, false>;
      Single single;
      static_cast<TransformerOptions&>(single) = *this;
      const TransformerStack::Options own = {num_layers, norm, Single::type(), Fields<Single>().write(&single)};
      return wired(std::make_shared<const TransformerStack>(*this, own, kIsDecoder, example), in);
    } else {
      return wired(std::make_shared<const TransformerLayer>(*this, kIsDecoder, example), in);
    }
  }

  static std::string type() {
    return std::string(kIsDecoder ? "TransformerDecoder" : "TransformerEncoder") + (kIsStack ? "" : "Layer");
  }
};

}  // namespace

void add_transformers(LayerRegistry& layers) {
  layers.add<Transformer<false, false>>(
      "TransformerEncoderLayer", "self-attention and two linear maps; inputs: the sequence, its key padding mask");
  layers.add<Transformer<false, true>>(
      "TransformerEncoder",
      "a stack of encoder layers that start with the same weights (with TransformerEncoderLayer and repeat, each has "
      "its own); inputs: the sequence, its key padding mask");
  layers.add<Transformer<true, false>>("TransformerDecoderLayer",
                                       "self-attention, attention to an encoder's output and two linear maps; inputs: "
                                       "the sequence, the memory, the key padding masks of both");
  layers.add<Transformer<true, true>>("TransformerDecoder",
                                      "a stack of decoder layers that start with the same weights; inputs: the "
                                      "sequence, the memory, the key padding masks of both");
}

}  // namespace trainrun
