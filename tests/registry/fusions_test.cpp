#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <regex>

#include "registry/graph/fusion.h"
#include "registry/graph/passes.h"
#include "registry/graph/shape_mode.h"
#include "registry/kernels/cpu_path.h"
#include "registry/kinds/graph_builder.h"
#include "tests/registry/fusion_plans.h"
#include "tests/registry/support.h"

using namespace trainrun;        // NOLINT(google-build-using-namespace)
using namespace trainrun::test;  // NOLINT(google-build-using-namespace)

namespace {

/// Layers in which a fusion is found `times` times, and what flows in.
struct FusionExample {
  std::string layers;
  std::vector<int64_t> shape;
  size_t times = 1;
  bool is_channels_last = false;
};

const std::map<std::string, std::vector<FusionExample>>& fusion_examples() {
  static const std::map<std::string, std::vector<FusionExample>> examples = {
      {"ReLUMaxPool2d",
       {{"[ReLU, {type: MaxPool2d, kernel_size: 2}]", {2, 3, 8, 8}},
        {"[{type: Conv2d, out_channels: 4, kernel_size: 3}, ReLU, {type: MaxPool2d, kernel_size: 2}]", {3, 1, 13, 9}},
        {"[{type: ReLU}, {type: MaxPool2d, kernel_size: 3, stride: 2, padding: 1}]", {2, 3, 11, 11}},
        {"[ReLU, {type: MaxPool2d, kernel_size: [2, 3], stride: [1, 2], dilation: [2, 1]}]", {2, 3, 9, 11}},
        {"[ReLU, {type: MaxPool2d, kernel_size: 2, ceil_mode: true}]", {2, 3, 7, 7}},
        {"[{type: BatchNorm2d}, {type: ReLU, inplace: true}, {type: MaxPool2d, kernel_size: 2}]", {2, 3, 8, 8}}}},
      {"WinogradConv2d",
       {{"[{type: Conv2d, out_channels: 64, kernel_size: 3, padding: 1}]", {4, 64, 12, 12}},
        {"[{type: Conv2d, out_channels: 40, kernel_size: 3, padding: 1}]", {70, 32, 2, 2}},
        {"[{type: Conv2d, out_channels: 32, kernel_size: 3, stride: 2, padding: 1}]", {8, 40, 16, 16}},
        {"[{type: Conv2d, out_channels: 40, kernel_size: 3, padding: same, bias: false}, {type: Conv2d, out_channels: "
         "32, kernel_size: 5}]",
         {4, 32, 13, 15},
         2}}},
      {"PointConv2d",
       {{"[{type: Conv2d, out_channels: 40, kernel_size: 1}]", {4, 24, 5, 7}, 1, true},
        {"[{type: Conv2d, out_channels: 24, kernel_size: 1, bias: false}, {type: Conv2d, out_channels: 16, "
         "kernel_size: 1, stride: [2, 3]}]",
         {3, 32, 9, 7},
         2,
         true},
        {"[{type: Conv2d, out_channels: 24, kernel_size: 1, padding: same}]", {2, 16, 3, 3}},
        {"[Tanh, {type: Conv2d, name: c, out_channels: 24, kernel_size: 1}, {type: Add, inputs: [c, '0']}]",
         {4, 24, 5, 7},
         1,
         true}}},
      {"ConvReLUMaxPool2d",
       {{"[{type: Conv2d, out_channels: 5, kernel_size: 3}, ReLU, {type: MaxPool2d, kernel_size: 2}]", {3, 1, 17, 29}},
        {"[{type: Conv2d, out_channels: 4, kernel_size: 5, padding: same, bias: false}, {type: ReLU, inplace: true}, "
         "{type: MaxPool2d, kernel_size: 2}]",
         {3, 2, 16, 40}},
        // Not as a first layer: its input wants a gradient.
        {"[Tanh, {type: Conv2d, out_channels: 4, kernel_size: 3}, ReLU, {type: MaxPool2d, kernel_size: 2}]",
         {3, 2, 16, 16}}}},
      {"ConvMaxPool2d",
       {{"[{type: Conv2d, out_channels: 5, kernel_size: 3, padding: 1}, {type: MaxPool2d, kernel_size: 2}]",
         {3, 3, 17, 29}}}},
      {"BatchNorm",
       {{"[{type: Conv2d, out_channels: 5, kernel_size: 3}, BatchNorm2d, Tanh]", {3, 4, 9, 7}, 1, true},
        {"[BatchNorm2d, Tanh]", {3, 5, 6, 6}},
        {"[Tanh, {type: BatchNorm1d, momentum: null}]", {12, 6}}}},
      {"BatchNormReLUMaxPool2d",
       {{"[BatchNorm2d, ReLU, {type: MaxPool2d, kernel_size: 3, stride: 2, padding: 1}]", {3, 20, 9, 7}, 1, true},
        {"[BatchNorm2d, {type: ReLU, inplace: true}, {type: MaxPool2d, kernel_size: 2}]", {3, 8, 9, 7}, 1, true},
        {"[BatchNorm2d, ReLU, {type: MaxPool2d, kernel_size: 3, stride: 2}]", {3, 5, 9, 7}}}},
      {"BatchNormReLU",
       {{"[BatchNorm1d, ReLU]", {12, 20}},
        {"[BatchNorm2d, ReLU, {type: Conv2d, out_channels: 4, kernel_size: 1}]", {3, 20, 5, 7}, 1, true},
        {"[{type: BatchNorm2d, affine: false, track_running_stats: false}, {type: ReLU, inplace: true}]",
         {3, 5, 6, 6},
         1,
         true},
        {"[{type: BatchNorm2d, momentum: null}, ReLU, BatchNorm2d, ReLU]", {3, 5, 6, 6}, 2}}},
      {"BatchNormAddReLU",
       {{"[{type: BatchNorm2d, name: n}, {type: Add, inputs: [n, x]}, ReLU]", {3, 20, 5, 7}, 1, true},
        {"[{type: Tanh, name: t}, {type: BatchNorm2d, name: n, inputs: x}, {type: Add, inputs: [t, n]}, {type: ReLU, "
         "inplace: true}]",
         {3, 8, 6, 6},
         1,
         true},
        {"[{type: Linear, name: t, out_features: 6}, {type: BatchNorm2d, name: n, inputs: x}, {type: Add, inputs: [t, "
         "n]}, ReLU]",
         {3, 8, 6, 6}},
        {"[{type: BatchNorm1d, name: a}, {type: BatchNorm1d, name: b, inputs: x}, {type: Add, inputs: [a, b]}, ReLU]",
         {12, 6}}}},
      {"AddNorm",
       {{"[{type: Linear, out_features: 6}, {type: Add, inputs: [x, '0']}, LayerNorm]", {2, 5, 6}},
        {"[{type: Add, name: sum, inputs: [x, x]}, {type: LayerNorm, name: norm, bias: false}, {type: Linear, "
         "out_features: 6}, {type: Add, inputs: ['2', sum]}]",
         {2, 5, 6}},
        {"[{type: Tanh, name: a}, {type: Add, name: s, inputs: [x, a]}, Tanh, {type: RMSNorm, inputs: s}, "
         "{type: Mul, inputs: ['2', '3']}]",
         {3, 6}},
        {"[{type: Linear, out_features: 6}, {type: Add, inputs: ['0', x]}, {type: LayerNorm, name: n}, {type: Linear, "
         "out_features: 6, name: m}, {type: Add, inputs: [m, n]}]",
         {2, 5, 6}},
        {"[{type: Linear, out_features: 6}, {type: Add, name: s, inputs: [x, '0']}, {type: LayerNorm, name: n}, {type: "
         "Add, inputs: [s, n]}]",
         {2, 5, 6}}}},
      {"DropoutAddNorm",
       {{"[{type: Linear, out_features: 6}, {type: Dropout, p: 0.3}, {type: Add, inputs: [x, '1']}, LayerNorm]",
         {2, 5, 6}},
        {"[{type: Linear, out_features: 6}, {type: Dropout, name: d, p: 0.3}, {type: Add, name: s, inputs: [d, x]}, "
         "{type: RMSNorm, name: n}, {type: Linear, out_features: 6, name: m}, {type: Add, inputs: [m, n, s]}]",
         {2, 5, 6}},
        {"[{type: Dropout, p: 0}, {type: Add, inputs: ['0', x]}, {type: LayerNorm, bias: false}]", {3, 6}},
        {"[{type: Linear, out_features: 6}, {type: Dropout, p: 0}, {type: Add, name: s, inputs: [x, '1']}, {type: "
         "LayerNorm, name: n}, {type: Add, inputs: [s, n]}]",
         {2, 5, 6}},
        {"[{type: Linear, out_features: 6}, {type: Dropout, p: 0.3}, {type: Add, name: s, inputs: ['1', x]}, {type: "
         "RMSNorm, name: n}, {type: Add, inputs: [s, n]}]",
         {2, 5, 6}},
        {"[{type: Dropout, p: 0}, {type: Linear, name: l, out_features: 6, inputs: x}, {type: Add, name: s, inputs: "
         "['0', l]}, {type: LayerNorm, name: n}, {type: Add, inputs: [s, n]}]",
         {2, 5, 6}}}},
      {"RowNorm",
       {{"[{type: LayerNorm, eps: 0.1}, {type: Linear, out_features: 6}]", {2, 5, 6}},
        {"[{type: RMSNorm}, {type: Linear, out_features: 6}, {type: Add, inputs: ['0', '1']}]", {3, 6}},
        {"[{type: LayerNorm, elementwise_affine: false}]", {3, 6}}}},
      {"LinearActivation",
       {{"[{type: Linear, out_features: 4}, ReLU]", {3, 6}},
        {"[{type: Linear, out_features: 4, bias: false}, {type: GELU, approximate: tanh}]", {2, 5, 6}},
        {"[{type: Linear, out_features: 4}, ReLU, {type: Linear, out_features: 4}, {type: ReLU, inplace: true}]",
         {2, 5, 6},
         2},
        {"[{type: TransposedLinear, out_features: 4}, GELU]", {2, 5, 6}}}},
      {"QueryKeyValue",
       {{"[{type: Linear, name: q, inputs: x, out_features: 6}, {type: Linear, name: k, inputs: x, out_features: 4}, "
         "{type: Linear, name: v, inputs: x, out_features: 4}, {type: Concat, dim: -1, inputs: [q, k, v]}]",
         {2, 5, 6}},
        {"[{type: Tanh, name: h}, {type: Linear, name: q, inputs: h, out_features: 4, bias: false}, {type: Linear, "
         "name: k, inputs: h, out_features: 4, bias: false}, {type: Add, name: s, inputs: [q, k]}, {type: Linear, "
         "name: v, inputs: h, out_features: 4, bias: false}, {type: Mul, inputs: [s, v]}]",
         {3, 6}}}},
      {"SwiGLU",
       {{"[{type: Linear, name: gate, inputs: x, out_features: 8}, SiLU, {type: Linear, name: up, inputs: x, "
         "out_features: 8}, {type: Mul, inputs: ['1', up]}, {type: Linear, out_features: 6}]",
         {2, 5, 6}},
        {"[{type: Linear, name: up, inputs: x, out_features: 8}, {type: Linear, name: gate, inputs: x, out_features: "
         "8}, SiLU, {type: Mul, inputs: [up, '2']}]",
         {2, 5, 6}},
        {"[SiLU, {type: Linear, name: up, inputs: x, out_features: 6}, {type: Mul, inputs: [up, '0']}]", {2, 5, 6}},
        {"[SiLU, {type: Linear, name: up, inputs: x, out_features: 6}, {type: Mul, inputs: ['0', up]}]", {2, 5, 6}}}},
  };
  return examples;
}

struct Pass {
  Tensors outputs;
  Tensors gradients;  // of the input, then of the parameters
};

/// Few different values, so that windows have ties.
at::Tensor input_of(const FusionExample& example) {
  torch::manual_seed(9);
  const at::Tensor x = torch::randint(-3, 4, example.shape).to(at::kFloat);
  const auto format = example.is_channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
  return x.contiguous(format).requires_grad_();
}

Pass run(const Plan& plan, Graph& graph, const FusionExample& example) {
  const at::Tensor x = input_of(example);
  Pass pass;
  pass.outputs = plan.run({x});
  torch::manual_seed(11);
  at::Tensor loss = torch::zeros({});
  for (const at::Tensor& output : pass.outputs) loss = loss + (output * torch::randn_like(output)).sum();
  graph.zero_grad();
  loss.backward();
  pass.gradients = {x.grad()};
  for (const at::Tensor& parameter : graph.parameters()) pass.gradients.push_back(parameter.grad().clone());
  return pass;
}

/// How large the numbers of a tensor are, which may be sums of many: their root mean square, at least 1.
double size_of(const at::Tensor& x) {
  return std::max(1.0, x.to(torch::kDouble).square().mean().sqrt().item<double>());
}

/// Bit for bit, or but for the last bits.
void check_equal(const Tensors& a, const Tensors& b, double tolerance = 0) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    const bool is_equal =
        tolerance == 0 ? torch::equal(a[i], b[i]) : torch::allclose(a[i], b[i], tolerance, tolerance * size_of(b[i]));
    CHECK(is_equal);
  }
}

struct Tolerance {
  double plain = 0;
  double half = 0;
};

/// How far a fusion's results may be from the layers': not at all, unless sums are in another order.
Tolerance tolerance_of(const std::string& fusion) {
  if (fusion == "QueryKeyValue" || fusion == "LinearActivation" || fusion == "RowNorm" || fusion == "SwiGLU")
    return {1e-6, 1e-2};
  if (fusion.ends_with("AddNorm")) return {1e-6, 1e-2};
  if (fusion == "WinogradConv2d") return {1e-4, 1e-2};
  if (fusion.starts_with("BatchNorm") || fusion.starts_with("Conv") || fusion == "PointConv2d") return {1e-5, 1e-2};
  return {};
}

}  // namespace

/// A plan that computes in bfloat16 where autocast would.
Pass run_in_half(const Plan& plan, Graph& graph, const FusionExample& example) {
  at::autocast::set_autocast_enabled(at::kCPU, true);
  Pass pass = run(plan, graph, example);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  return pass;
}

TEST_CASE("every fusion gives what the layers give that it replaces, forward and backward") {
  for (const Fusion& fusion : catalog().fusions.entries()) {
    CAPTURE(fusion.name);
    CHECK_FALSE(fusion.doc.empty());
    const Tolerance tolerance = tolerance_of(fusion.name);
    REQUIRE(fusion_examples().contains(fusion.name));
    for (const FusionExample& example : fusion_examples().at(fusion.name)) {
      CAPTURE(example.layers);
      const auto graph = build_seeded(example.layers, inputs_like(torch::zeros(example.shape)));
      const Plan plain = make_plan(*graph);
      const Plan plan = make_plan(*graph, with(only(fusion)));
      REQUIRE(plan.steps.size() == plain.steps.size() - example.times * (fusion.pattern.nodes.size() - 1));
      const Pass expected = run(plain, *graph, example);
      const Pass found = run(plan, *graph, example);
      check_equal(found.outputs, expected.outputs, tolerance.plain);
      check_equal(found.gradients, expected.gradients, tolerance.plain);
      const Pass half_expected = run_in_half(plain, *graph, example);
      const Pass half_found = run_in_half(plan, *graph, example);
      check_equal(half_found.outputs, half_expected.outputs, tolerance.half);
      check_equal(half_found.gradients, half_expected.gradients, 2 * tolerance.half);
    }
  }
}

/// A tensor like `x` whose dimensions lie in memory in the order of `dims`, the last one densest.
at::Tensor laid(const at::Tensor& x, const std::vector<int64_t>& dims) {
  std::vector<int64_t> back(dims.size());
  for (size_t i = 0; i < dims.size(); ++i) back[static_cast<size_t>(dims[i])] = static_cast<int64_t>(i);
  return x.permute(dims).contiguous().permute(back);
}

/// The order in which a dropout draws for the elements of x: strides without gaps, where there is more than one element.
std::vector<int64_t> order_in(const at::Tensor& x) {
  const at::Tensor dense = at::empty_like(x);
  std::vector<int64_t> strides;
  for (int64_t dim = 0; dim < x.dim(); ++dim) {
    if (x.size(dim) > 1) strides.push_back(dense.stride(dim));
  }
  return strides;
}

TEST_CASE("what a fusion gives lies in memory as what its layers give, in which order a dropout draws") {
  for (const Fusion& fusion : catalog().fusions.entries()) {
    CAPTURE(fusion.name);
    for (const FusionExample& example : fusion_examples().at(fusion.name)) {
      CAPTURE(example.layers);
      const auto graph = build_seeded(example.layers, inputs_like(torch::zeros(example.shape)));
      const Plan plain = make_plan(*graph);
      const Plan plan = make_plan(*graph, with(only(fusion)));
      std::vector<int64_t> dims(example.shape.size());
      std::iota(dims.begin(), dims.end(), 0);
      do {
        CAPTURE(at::IntArrayRef(dims));
        const at::Tensor x = laid(torch::randn(example.shape), dims);
        torch::manual_seed(3);
        const Tensors expected = plain.run({x});
        torch::manual_seed(3);
        const Tensors found = plan.run({x});
        for (size_t i = 0; i < expected.size(); ++i) CHECK((order_in(found[i]) == order_in(expected[i])));
        check_equal(found, expected, tolerance_of(fusion.name).plain);
      } while (std::next_permutation(dims.begin(), dims.end()));
    }
  }
}

TEST_CASE("a parameter that no loss depends on has no gradient, fused or not") {
  for (const std::string layers :
       {"[{type: Linear, name: q, inputs: x, out_features: 6}, {type: Linear, name: k, inputs: x, out_features: 4}, "
        "{type: Linear, name: v, inputs: x, out_features: 4}, {type: Concat, dim: -1, inputs: [q, v]}]",
        "[{type: Linear, name: l, out_features: 6}, {type: Add, name: s, inputs: [x, l]}, {type: LayerNorm, name: n}, "
        "{type: Tanh, inputs: s}]",
        "[{type: Linear, out_features: 6}, {type: Dropout, name: d, p: 0.3}, {type: Add, name: s, inputs: [x, d]}, "
        "{type: "
        "RMSNorm, name: n}, {type: Tanh, inputs: s}]"}) {
    CAPTURE(layers);
    const auto graph = build_seeded(layers, inputs_like(torch::zeros({2, 6})));
    const auto without_gradient = [&](const Plan& plan) {
      for (const at::Tensor& parameter : graph->parameters()) parameter.mutable_grad().reset();
      plan.run({torch::randn({2, 6})})[0].sum().backward();
      std::vector<std::string> names;
      for (const auto& parameter : graph->named_parameters()) {
        if (!parameter.value().grad().defined()) names.push_back(parameter.key());
      }
      return names;
    };
    const Plan plain = make_plan(*graph), plan = make_plan(*graph, with(catalog().fusions));
    REQUIRE(plan.steps.size() < plain.steps.size());
    const std::vector<std::string> expected = without_gradient(plain);
    CHECK_FALSE(expected.empty());
    CHECK(without_gradient(plan) == expected);
  }
}

TEST_CASE("a product of three Linears is computed by each where nothing is trained") {
  const std::string layers =
      "[{type: Linear, name: q, inputs: x, out_features: 6}, {type: Linear, name: k, inputs: x, out_features: 4}, "
      "{type: Linear, name: v, inputs: x, out_features: 4}, {type: Concat, dim: -1, inputs: [q, k, v]}]";
  const auto graph = build_seeded(layers, inputs_like(torch::zeros({2, 6})));
  const Plan plan = make_plan(*graph, with(catalog().fusions));
  REQUIRE(plan.steps[0].fusion == "QueryKeyValue");
  const at::Tensor x = torch::randn({2, 6});
  const torch::NoGradGuard no_gradients;
  check_equal(plan.run({x}), make_plan(*graph).run({x}));
}

/// How often each fusion is found in a model of `layers` that reads `inputs`.
std::map<std::string, int> found_in(const std::string& layers, const LayerInputs& inputs) {
  const ShapeMode shapes;
  const auto graph = build(layers, inputs);
  std::map<std::string, int> found;
  for (const PlanStep& step : make_plan(*graph, with(catalog().fusions)).steps) {
    if (!step.fusion.empty()) ++found[step.fusion];
  }
  return found;
}

TEST_CASE("the fusions are found in registered models and in a Transformer's block of a recipe") {
  using Found = std::map<std::string, int>;
  const LayerInputs tokens = inputs_like(torch::zeros({2, 8}, torch::kLong), "input_ids");
  const std::string gpt2 = "vocab_size: 20, n_positions: 8, n_embd: 8, n_layer: 3, n_head: 2}]";
  CHECK(found_in("[{type: GPT2LMHeadModel, " + gpt2, tokens) ==
        Found{{"DropoutAddNorm", 6}, {"LinearActivation", 3}, {"RowNorm", 1}});
  const std::string sizes =
      "vocab_size: 20, hidden_size: 8, intermediate_size: 16, num_hidden_layers: 3, num_attention_heads: 2}]";
  CHECK(found_in("[{type: LlamaForCausalLM, " + sizes, tokens) ==
        Found{{"AddNorm", 6}, {"QueryKeyValue", 3}, {"RowNorm", 1}, {"SwiGLU", 3}});
  CHECK(found_in("[{type: BertModel, " + sizes, tokens) ==
        Found{{"DropoutAddNorm", 6}, {"LinearActivation", 3}, {"QueryKeyValue", 3}, {"RowNorm", 1}});
  CHECK(found_in("[{type: ViT_S_16, num_classes: 10}]", inputs_like(torch::zeros({2, 3, 224, 224}))) ==
        Found{{"DropoutAddNorm", 24}, {"LinearActivation", 12}, {"RowNorm", 1}});
  const std::string block = R"(
- {type: LayerNorm, name: ln_1_N, bias: false}
- {type: MultiheadAttention, name: attn_N, num_heads: 2, is_causal: true, batch_first: true, bias: false}
- {type: Add, name: x_1_N, inputs: [FROM, attn_N]}
- {type: LayerNorm, name: ln_2_N, bias: false}
- {type: Linear, name: c_fc_N, out_features: 16, bias: false}
- {type: GELU, name: gelu_N}
- {type: Linear, name: c_proj_N, out_features: 8, bias: false}
- {type: Add, name: x_2_N, inputs: [x_1_N, c_proj_N]}
)";
  const auto numbered = [&](const std::string& number, const std::string& from) {
    const std::string named = std::regex_replace(block, std::regex("_N"), "_" + number);
    return std::regex_replace(named, std::regex("FROM"), from);
  };
  CHECK(found_in(numbered("1", "x") + numbered("2", "x_2_1") + "- LayerNorm", inputs_like(torch::zeros({2, 4, 8}))) ==
        Found{{"AddNorm", 4}, {"LinearActivation", 2}, {"RowNorm", 1}});
}

TEST_CASE("every norm of a ResNet that a ReLU follows is fused, and none that others read") {
  const auto found =
      found_in("[{type: ResNet18, num_classes: 10, stem: cifar}]", inputs_like(torch::zeros({2, 3, 32, 32})));
  CHECK(found.at("BatchNormReLU") == 9);
  CHECK(found.at("BatchNormAddReLU") == 8);
  CHECK(found_in("[{type: ResNet18, num_classes: 10}]", inputs_like(torch::zeros({2, 3, 64, 64})))
            .at("BatchNormReLUMaxPool2d") == 1);
  CHECK(fused("[{type: BatchNorm1d, name: n}, ReLU, {type: Add, inputs: ['1', n]}]", {4, 6}, catalog().fusions) ==
        Strings{"n", "1", "2"});
}

TEST_CASE("the convolutions of 1x1 of a ResNet are products where that was measured, unless convolutions are direct") {
  const std::string layers = "[{type: ResNet50, num_classes: 10}]";
  const auto inputs = inputs_like(torch::zeros({2, 3, 64, 64}));
  const kernels::CpuPath path = kernels::best_cpu_path();
  const bool is_measured = path != kernels::CpuPath::kGeneric;
  const int with_avx512 = 36 - 7;  // not the first stage's: many points of 64 channels
  CHECK(found_in(layers, inputs)["PointConv2d"] == (path == kernels::CpuPath::kAvx2 ? 36
                                                    : is_measured                   ? with_avx512
                                                                                    : 0));
  CHECK(found_in(layers, inputs)["WinogradConv2d"] == (is_measured ? 16 : 0));  // three are of stride 2
  CHECK(std::ranges::none_of(catalog().fusions.without_fast_convolutions().entries(),
                             [](const Fusion& fusion) { return fusion.name == "PointConv2d"; }));
}

/// What each layer reads first, under autocast: "a: BFloat16".
Strings read_under_autocast(const std::string& layers, const std::vector<Bracket>& brackets = {}) {
  const auto graph = build_seeded(layers, inputs_like(torch::zeros({2, 5, 6})));
  PlanOptions options = with(catalog().fusions);
  options.brackets = brackets;
  at::autocast::set_autocast_enabled(at::kCPU, true);
  Strings read;
  make_plan(*graph, options).run({torch::randn({2, 5, 6})}, [&](const PlanStep& step, const Tensors& inputs) {
    if (!inputs.empty()) read.push_back(step.layer + ": " + c10::toString(inputs[0].scalar_type()));
    return step.operation->run(inputs);
  });
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  return read;
}

TEST_CASE("under autocast, layers that cast a norm get it cast, and those that read it itself do not") {
  const std::string norm = "{type: LayerNorm, name: n}, ", linear = "{type: Linear, out_features: 6, inputs: n, name: ";
  CHECK(read_under_autocast("[" + norm + linear + "a}, " + linear + "b}, {type: Mul, inputs: [a, b]}]") ==
        Strings{"n: Float", "a: BFloat16", "b: BFloat16", "3: BFloat16"});
  CHECK(read_under_autocast("[" + norm + linear + "a}, {type: Mul, name: m, inputs: [n, a]}]") ==
        Strings{"n: Float", "a: BFloat16", "m: Float"});
  CHECK(read_under_autocast("[" + norm + linear + "a}, {type: Tanh, name: t, inputs: n}]") ==
        Strings{"n: Float", "a: BFloat16", "t: Float"});
  // Somebody may change it meanwhile.
  CHECK(read_under_autocast("[" + norm + "{type: ReLU, inplace: true, name: r}, " + linear + "a}]") ==
        Strings{"n: Float", "r: Float", "a: Float"});
  // A bracket hears of the outputs that the layer has.
  const Bracket around{"n", [] {}, [](const Tensors&) {}};
  CHECK(read_under_autocast("[" + norm + linear + "a}]", {around}) == Strings{"n: Float", "n: Float", "a: Float"});
}

TEST_CASE("a module in two places is fused in each by itself") {
  const auto graph = build_seeded(R"(
- {type: Linear, out_features: 4, name: fc}
- ReLU
- {type: Linear, out_features: 4, share: fc}
- ReLU
)",
                                  inputs_like(torch::zeros({2, 4})));
  const Plan plain = make_plan(*graph);
  const Plan plan = make_plan(*graph, with(linear_relu()));
  CHECK(layers_of(plan) == Strings{"fc + 1", "2 + 3"});
  const Pass expected = run(plain, *graph, {"", {2, 4}});
  const Pass found = run(plan, *graph, {"", {2, 4}});
  check_equal(found.outputs, expected.outputs);
  check_equal(found.gradients, expected.gradients);
}
