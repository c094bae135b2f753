#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "registry/layer.h"
#include "registry/layers/attention.h"

// torch.nn.TransformerEncoderLayer, TransformerDecoderLayer and the stacks of them, as Python has them; LibTorch's own
// lack batch_first, norm_first and bias, and leave the random generator elsewhere. Source: Vaswani et al. 2017,
// "Attention Is All You Need"; norm_first: Xiong et al. 2020, "On Layer Normalization in the Transformer Architecture".

namespace trainrun {
namespace {

using at::Tensor;

struct TransformerOptions {
  int64_t d_model = 0;
  int64_t nhead = 1;
  int64_t dim_feedforward = 2048;
  double dropout = 0.1;
  std::string activation = "relu";
  double layer_norm_eps = 1e-5;
  bool batch_first = false;
  bool norm_first = false;
  bool bias = true;
  bool is_decoder = false;
  bool is_causal = false;
  bool memory_is_causal = false;
};

/// What a layer reads: `memory` and its mask are a decoder's; the masks [N, T] may be undefined.
struct Sequences {
  Tensor memory;
  Tensor padding;
  Tensor memory_padding;
};

/// Normalization over the last dimension; LibTorch's own always has a bias.
struct Norm : torch::nn::Module {
  explicit Norm(const TransformerOptions& options) : eps(options.layer_norm_eps) {
    weight = register_parameter("weight", at::ones({options.d_model}));
    if (options.bias) bias = register_parameter("bias", at::zeros({options.d_model}));
  }
  Tensor operator()(const Tensor& x) const { return at::layer_norm(x, weight.sizes(), weight, bias, eps); }
  double eps;
  Tensor weight;
  Tensor bias;
};

class TransformerLayer : public torch::nn::Module {
 public:
  explicit TransformerLayer(const TransformerOptions& options) : options_(options) {
    AttentionOptions attention;
    attention.embed_dim = options.d_model;
    attention.num_heads = options.nhead;
    attention.dropout = options.dropout;
    attention.bias = options.bias;
    attention.batch_first = options.batch_first;
    self_attn_ = register_module("self_attn", std::make_shared<Attention>(attention));
    if (options.is_decoder) {
      multihead_attn_ = register_module("multihead_attn", std::make_shared<Attention>(attention));
    }
    const auto linear = [&](int64_t in, int64_t out) {
      return torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(options.bias));
    };
    linear1_ = register_module("linear1", linear(options.d_model, options.dim_feedforward));
    linear2_ = register_module("linear2", linear(options.dim_feedforward, options.d_model));
    for (int i = 1; i <= (options.is_decoder ? 3 : 2); ++i) {
      norms_.push_back(register_module("norm" + std::to_string(i), std::make_shared<Norm>(options)));
    }
  }

  Tensor forward(Tensor x, const Sequences& with) {
    x = add(x, *norms_.front(),
            [&](const Tensor& y) { return self_attn_->forward(y, y, y, with.padding, options_.is_causal); });
    if (options_.is_decoder) {
      x = add(x, *norms_[1], [&](const Tensor& y) {
        return multihead_attn_->forward(y, with.memory, with.memory, with.memory_padding, options_.memory_is_causal);
      });
    }
    return add(x, *norms_.back(), [&](const Tensor& y) {
      const Tensor hidden = linear1_->forward(y);
      return linear2_->forward(drop(options_.activation == "relu" ? at::relu(hidden) : at::gelu(hidden)));
    });
  }

 private:
  Tensor drop(const Tensor& x) const { return at::dropout(x, options_.dropout, is_training()); }

  /// x + part(x), normalized after or, with norm_first, before.
  template <class Part>
  Tensor add(const Tensor& x, const Norm& norm, const Part& part) const {
    return options_.norm_first ? x + drop(part(norm(x))) : norm(x + drop(part(x)));
  }

  TransformerOptions options_;
  std::shared_ptr<Attention> self_attn_;
  std::shared_ptr<Attention> multihead_attn_;  // a decoder's
  torch::nn::Linear linear1_ = nullptr;
  torch::nn::Linear linear2_ = nullptr;
  std::vector<std::shared_ptr<Norm>> norms_;
};

class TransformerStack : public torch::nn::Module {
 public:
  TransformerStack(const TransformerOptions& options, int64_t num_layers, bool with_norm) {
    const auto list = register_module("layers", std::make_shared<List>());
    for (int64_t i = 0; i < num_layers; ++i) {
      layers_.push_back(i == 0 ? std::make_shared<TransformerLayer>(options) : copy_of_first(options));
      list->register_module(std::to_string(i), layers_.back());
    }
    if (with_norm) norm_ = register_module("norm", std::make_shared<Norm>(options));
  }

  Tensor forward(Tensor x, const Sequences& with) {
    for (const auto& layer : layers_) x = layer->forward(x, with);
    return norm_ ? (*norm_)(x) : x;
  }

 private:
  struct List : torch::nn::Module {};

  /// Python's stack copies one layer: all begin with the same weights, and the generator is where the first left it.
  std::shared_ptr<TransformerLayer> copy_of_first(const TransformerOptions& options) const {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const auto locked = [&](const auto& action) {
      const std::lock_guard<std::mutex> lock(generator.mutex());
      return action();
    };
    const Tensor state = locked([&] { return generator.get_state(); });
    auto copy = std::make_shared<TransformerLayer>(options);
    locked([&] { generator.set_state(state); });
    const c10::AutoGradMode no_gradients(false);
    const auto from = layers_.front()->parameters();
    const auto to = copy->parameters();
    for (size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
    return copy;
  }

  std::vector<std::shared_ptr<TransformerLayer>> layers_;
  std::shared_ptr<Norm> norm_;
};

/// The four of them.
template <bool kIsDecoder, bool kIsStack>
struct Transformer {
  int64_t nhead = 0;
  int64_t num_layers = 1;
  bool norm = false;
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
    f.optional("norm_first", &T::norm_first).doc("normalize what attention and linear maps read, not what they give");
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
    const TransformerOptions options = {in.infer("d_model", d_model, 2),
                                        nhead,
                                        dim_feedforward,
                                        dropout,
                                        activation,
                                        layer_norm_eps,
                                        batch_first,
                                        norm_first,
                                        bias,
                                        kIsDecoder,
                                        is_causal,
                                        memory_is_causal};
    if constexpr (kIsStack) {
      return layer(std::make_shared<TransformerStack>(options, num_layers, norm), dropout > 0);
    } else {
      return layer(std::make_shared<TransformerLayer>(options), dropout > 0);
    }
  }

 private:
  template <class Module>
  static Layer layer(const std::shared_ptr<Module>& module, bool random) {
    return {module,
            [module](const Tensors& inputs) -> Tensors {
              const auto input = [&](size_t i) { return i < inputs.size() ? inputs[i] : Tensor(); };
              const Sequences with = kIsDecoder ? Sequences{input(1), input(2), input(3)} : Sequences{{}, input(1), {}};
              return {module->forward(inputs[0], with)};
            },
            {.random = random}};
  }
};

}  // namespace

void add_transformers(LayerRegistry& layers) {
  layers.add<Transformer<false, false>>(
      "TransformerEncoderLayer", "self-attention and two linear maps; inputs: the sequence, its key padding mask");
  layers.add<Transformer<false, true>>(
      "TransformerEncoder",
      "a stack of encoder layers that begin with the same weights (with TransformerEncoderLayer and repeat, each has "
      "its own); inputs: the sequence, its key padding mask");
  layers.add<Transformer<true, false>>("TransformerDecoderLayer",
                                       "self-attention, attention to an encoder's output and two linear maps; inputs: "
                                       "the sequence, the memory, the key padding masks of both");
  layers.add<Transformer<true, true>>("TransformerDecoder",
                                      "a stack of decoder layers that begin with the same weights; inputs: the "
                                      "sequence, the memory, the key padding masks of both");
}

}  // namespace trainrun
