#include "registry/kinds/layer_sharing.h"

#include <torch/torch.h>

#include "registry/graph/shape_mode.h"
#include "registry/kinds/graph_builder.h"
#include "tests/registry/support.h"

using namespace trainrun;        // NOLINT(google-build-using-namespace)
using namespace trainrun::test;  // NOLINT(google-build-using-namespace)

namespace {

/// "stride" of what two layers of `type`, the first with `own` options and both with `common` ones, are refused for.
std::string refused(const std::string& type, const std::string& common, const std::string& option,
                    const at::Tensor& input) {
  const std::string both = "{type: " + type + (common.empty() ? "" : ", " + common);
  std::string text = fault("- " + both + ", name: a}\n- " + both + ", " + option + ", share: a}", input);
  const std::string start = "[1].";
  const size_t place = text.find(start);
  if (place == std::string::npos) return text;
  const size_t begin = place + start.size();
  CHECK(text.find("a shared layer is one module, with one set of options: ") != std::string::npos);
  CHECK(text.find(" in " + type + " 'a' (test.yaml:1:3)") != std::string::npos);
  return text.substr(begin, text.find(':', begin) - begin);
}

}  // namespace

TEST_CASE("two layers with different options cannot be one module") {
  const auto image = torch::zeros({2, 4, 9, 9});
  const std::string conv = "out_channels: 4, kernel_size: 3, padding: 1";
  CHECK(refused("Conv2d", conv, "stride: 2", image) == "stride");
  CHECK(refused("Conv2d", "out_channels: 4, kernel_size: 3", "padding: 1", image) == "padding");
  CHECK(refused("Conv2d", conv, "dilation: 2", image) == "dilation");
  CHECK(refused("Conv2d", conv, "padding_mode: reflect", image) == "padding_mode");
  CHECK(refused("BatchNorm2d", "", "eps: 1e-3", image) == "eps");
  CHECK(refused("BatchNorm2d", "", "momentum: null", image) == "momentum");
  CHECK(refused("GroupNorm", "num_groups: 2", "eps: 0.1", image) == "eps");
  CHECK(refused("Dropout", "", "p: 0.1", image) == "p");
  const auto sequence = torch::zeros({2, 4, 4});
  CHECK(refused("LSTM", "hidden_size: 4", "batch_first: true", sequence) == "batch_first");
  CHECK(refused("MultiheadAttention", "num_heads: 2", "is_causal: true", sequence) == "is_causal");
  CHECK(refused("TransformerEncoderLayer", "nhead: 2, dim_feedforward: 4", "norm_first: true", sequence) ==
        "norm_first");
  CHECK(fault("- {type: GroupNorm, num_groups: 2, name: a}\n- {type: GroupNorm, num_groups: 4, share: a}", image) ==
        "test.yaml:2:33: [1].num_groups: a shared layer is one module, with one set of options: num_groups is 4, but 2 "
        "in GroupNorm 'a' (test.yaml:1:3)");
  CHECK(fault("- {type: Conv2d, " + conv + ", name: a, stride: 1}\n- {type: Conv2d, in_channels: 4, " + conv +
                  ", share: a, dilation: [1, 1]}",
              image) == "");  // the same, written otherwise
}

TEST_CASE("initial values and learning rate are those of the layer that is shared") {
  const auto x = torch::zeros({2, 4});
  CHECK(fault("- {type: Linear, out_features: 4, name: a}\n- {type: Linear, out_features: 4, share: a, init: Zeros}",
              x) == "test.yaml:2:51: [1].init: init is that of Linear 'a', which this layer shares; write it there");
  CHECK(fault("- {type: Linear, out_features: 4, name: a}\n- {type: Linear, out_features: 4, share: a, lr_scale: 2}",
              x) ==
        "test.yaml:2:55: [1].lr_scale: lr_scale is that of Linear 'a', which this layer shares; write it there");
}

TEST_CASE("containers share where all layers in them are alike") {
  const auto x = torch::zeros({2, 4});
  const std::string tower = "{type: Linear, out_features: 4, name: fc}, {type: LeakyReLU, negative_slope: 0.1}";
  const std::string other = "{type: Linear, out_features: 4, name: fc}, {type: LeakyReLU, negative_slope: 0.2}";
  const auto pair = [](const std::string& first, const std::string& second) {
    return "- {type: Sequential, name: a, layers: [" + first + "]}\n- {type: Sequential, share: a, layers: [" + second +
           "]}";
  };
  CHECK(fault(pair(tower, tower), x) == "");
  CHECK(fault(pair(tower, other), x) ==
        "test.yaml:2:29: [1].1.negative_slope: a shared layer is one module, with one set of options: "
        "1.negative_slope is 0.2, but 0.1 in Sequential 'a' (test.yaml:1:3)");
  CHECK(fault(pair(tower, tower + ", ReLU"), x).find("there are 3 layers, but 2 in Sequential 'a'") !=
        std::string::npos);
  CHECK(fault("- {type: Residual, name: a, main: [" + tower + "]}\n- {type: Residual, share: a, main: [" + other + "]}",
              x)
            .find("main.1.negative_slope is 0.2, but 0.1") != std::string::npos);
}

TEST_CASE("a shared layer draws no initial weights, a tied one does, as in PyTorch") {
  torch::manual_seed(3);
  const torch::nn::Linear first(4, 4);
  const torch::nn::Linear second(4, 4);
  torch::manual_seed(3);
  const auto graph = build(R"(
- {type: Linear, out_features: 4, name: a}
- {type: Linear, out_features: 4, share: a}
- {type: Linear, out_features: 4, name: b}
)",
                           inputs_like(torch::zeros({2, 4})));
  CHECK(graph->named_parameters()["a.weight"].equal(first->weight));
  CHECK(graph->named_parameters()["b.weight"].equal(second->weight));

  torch::manual_seed(3);
  const torch::nn::Embedding embedding(7, 4);
  const torch::nn::Linear head(4, 7);
  const torch::nn::Linear last(7, 2);
  torch::manual_seed(3);
  const auto tied = build(R"(
- {type: Embedding, num_embeddings: 7, embedding_dim: 4, name: tokens}
- {type: Linear, out_features: 7, share: tokens, name: head}
- {type: Linear, out_features: 2, name: last}
)",
                          inputs_like(torch::zeros({2, 5}, at::kLong)));
  auto parameters = tied->named_parameters();
  CHECK(parameters["head.weight"].is_same(parameters["tokens.weight"]));
  CHECK(parameters["head.bias"].equal(head->bias));
  CHECK(parameters["last.weight"].equal(last->weight));
}

TEST_CASE("a layer without parameters may be shared") {
  const auto x = torch::randn({2, 4});
  const auto graph = build(R"(
- {type: LeakyReLU, negative_slope: 0.5, name: act}
- {type: LeakyReLU, negative_slope: 0.5, share: act}
)",
                           inputs_like(x));
  CHECK(graph->forward({x})[0].allclose(torch::where(x > 0, x, x / 4)));
  const auto norms = build(
      "- {type: BatchNorm1d, affine: false, name: a}\n- {type: BatchNorm1d, affine: false, share: a}", inputs_like(x));
  norms->forward({x});
  CHECK(norms->named_buffers()["1.num_batches_tracked"].item<int64_t>() == 2);  // it has running statistics
}

TEST_CASE("a layer within a container may share one outside, and the other way round") {
  const auto x = torch::randn({2, 4});
  const auto graph = build(R"(
- {type: Linear, out_features: 4, name: fc}
- type: Sequential
  name: inner
  layers:
    - ReLU
    - {type: Residual, name: res, main: [{type: Linear, out_features: 4, name: own}, {type: Linear, out_features: 4, share: fc, name: again}]}
- {type: Linear, out_features: 4, share: inner.res.main.own}
- {type: Linear, out_features: 4, share: fc, repeat: 2, name: stack}
)",
                           inputs_like(x));
  auto p = graph->named_parameters();
  CHECK(p["inner.res.main.again.weight"].is_same(p["fc.weight"]));
  CHECK(p["2.weight"].is_same(p["inner.res.main.own.weight"]));
  CHECK(p["stack.1.weight"].is_same(p["fc.weight"]));
  const auto fc = [&](const at::Tensor& t) { return torch::linear(t, p["fc.weight"], p["fc.bias"]); };
  const auto own = [&](const at::Tensor& t) { return torch::linear(t, p["2.weight"], p["2.bias"]); };
  const auto h = fc(x).relu();
  CHECK(graph->forward({x})[0].allclose(fc(fc(own(fc(own(h)) + h)))));
  const auto tied = build(R"(
- {type: Embedding, num_embeddings: 4, embedding_dim: 4, name: tokens}
- {type: Sequential, name: head, layers: [Tanh, {type: Linear, out_features: 4, share: tokens, name: out}]}
)",
                          inputs_like(torch::zeros({2, 5}, at::kLong)));
  auto parameters = tied->named_parameters();
  CHECK(parameters["head.out.weight"].is_same(parameters["tokens.weight"]));
}

TEST_CASE("what is shared across containers is counted once without memory, too, and refused with its place") {
  const std::string yaml = R"(
- {type: Linear, out_features: 4, name: fc}
- {type: Sequential, layers: [{type: Linear, out_features: 4, share: fc}]}
)";
  const ShapeMode shapes;
  const auto graph = build(yaml, inputs_like(torch::zeros({2, 4})));
  auto p = graph->named_parameters();
  CHECK(p["1.0.weight"].is_same(p["fc.weight"]));
  CHECK(p["1.0.weight"].is_meta());
  CHECK(fault("- {type: Linear, out_features: 4, name: fc}\n- {type: Sequential, layers: [{type: Linear, out_features: "
              "5, share: fc}]}",
              torch::zeros({2, 4}))
            .find("[1].layers[0].share: the parameters of Linear (bias [5], weight [5, 4]) are not like those of "
                  "Linear 'fc'") != std::string::npos);
  CHECK(fault("- {type: Sequential, layers: [{type: Linear, out_features: 4, share: fcc}]}", torch::zeros({2, 4}))
            .find("no earlier layer is called 'fcc'") != std::string::npos);
}
