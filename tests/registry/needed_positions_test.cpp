// Positions that nothing reads are left out: what is read, gradients and draws are those of layers by themselves.
#include "registry/graph/needed_positions.h"

#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include <map>
#include <sstream>

#include "registry/kernels/row_moves.h"
#include "tests/registry/fusion_plans.h"

namespace trainrun {
namespace {

using namespace test;

constexpr int64_t kTexts = 5, kLength = 40, kFeatures = 24;

/// Two blocks of a BERT over `x` [N, T, C] and `mask` [N, T], then `end`.
std::string blocks(const std::string& end, double dropout = 0, bool has_mask = true) {
  const std::string p = std::to_string(dropout);
  std::string text = "- {type: LayerNorm, inputs: x, name: b0}\n";
  for (const std::string i : {"1", "2"}) {
    const std::string from = "b" + std::to_string(std::stoi(i) - 1);
    for (const std::string part : {"q", "k", "v"}) {
      text += "- {type: Linear, out_features: 24, inputs: " + from + ", name: " + part + i + "}\n";
    }
    text += "- {type: ScaledDotProductAttention, num_heads: 2, dropout: " + p + ", inputs: [q" + i + ", k" + i + ", v" +
            i + (has_mask ? ", mask" : "") + "], name: a" + i + "}\n";
    text += "- {type: Linear, out_features: 24, inputs: a" + i + ", name: o" + i + "}\n";
    text += "- {type: Dropout, p: " + p + ", inputs: o" + i + ", name: d" + i + "}\n";
    text += "- {type: Add, inputs: [d" + i + ", " + from + "], name: s" + i + "}\n";
    text += "- {type: LayerNorm, inputs: s" + i + ", name: n" + i + "}\n";
    text += "- {type: Linear, out_features: 48, inputs: n" + i + ", name: f" + i + "}\n";
    text += "- {type: GELU, inputs: f" + i + ", name: g" + i + "}\n";
    text += "- {type: Linear, out_features: 24, inputs: g" + i + ", name: h" + i + "}\n";
    text += "- {type: Dropout, p: " + p + ", inputs: h" + i + ", name: e" + i + "}\n";
    text += "- {type: Add, inputs: [n" + i + ", e" + i + "], name: t" + i + "}\n";
    text += "- {type: LayerNorm, inputs: t" + i + ", name: b" + i + "}\n";
  }
  return text + end;
}

const std::string kClassified =
    "- {type: Select, dim: 1, index: 0, inputs: b2, name: first}\n- {type: Linear, out_features: 3, inputs: first}\n";

LayerInputs texts() {
  LayerInputs inputs;
  inputs.examples = {torch::zeros({2, kLength, kFeatures}).to(at::kMeta),
                     torch::zeros({2, kLength}, at::kLong).to(at::kMeta)};
  inputs.names = {"x", "mask"};
  return inputs;
}

/// What a pass gives: outputs, gradients of x and of the parameters, and the draw that comes next.
struct PassOutcome {
  Tensors tensors;
  std::map<std::string, std::vector<int64_t>> sizes;  // by layer: of the first input of the step that computes it
};

PassOutcome trained(const std::string& layers, bool is_fused, const at::Tensor& mask, const PlanOptions& given = {},
                    bool trains = true) {
  const auto graph = build_seeded(layers, texts());
  graph->train(trains);
  PlanOptions options = given;
  PassOutcome outcome;
  if (is_fused) options.fusions = std::make_shared<const FusionRegistry>(catalog().fusions);
  options.measure = [&](const PlanStep& step) -> std::shared_ptr<const Operation> {
    if (!step.computes || step.inside || step.leaves.empty()) return nullptr;
    return operation_of([&outcome, step](const Tensors& inputs) {
      outcome.sizes[step.layer] = inputs[0].sizes().vec();
      return step.operation->run(inputs);
    });
  };
  const Plan plan = make_plan(*graph, options);
  torch::manual_seed(3);
  at::Tensor x = torch::randn({kTexts, kLength, kFeatures}).requires_grad_();
  outcome.tensors = plan.run({x, mask});
  outcome.tensors.push_back(torch::rand({2}));
  torch::manual_seed(4);
  (outcome.tensors[0] * torch::randn(outcome.tensors[0].sizes())).sum().backward();
  outcome.tensors.push_back(x.grad());
  for (const auto& parameter : graph->parameters()) outcome.tensors.push_back(parameter.grad());
  return outcome;
}

void check_close(const PassOutcome& one, const PassOutcome& other) {
  REQUIRE(one.tensors.size() == other.tensors.size());
  for (size_t i = 0; i < one.tensors.size(); ++i) {
    CAPTURE(i);
    REQUIRE(one.tensors[i].defined() == other.tensors[i].defined());
    if (!one.tensors[i].defined()) continue;
    const at::Tensor sizes = other.tensors[i].abs();
    const double largest = sizes.where(sizes.isfinite(), 0).max().item<double>();
    CHECK(torch::allclose(one.tensors[i], other.tensors[i], 1e-5, 1e-5 * largest + 5e-7));
  }
}

/// The first `lengths` of each text are not padding; of negative ones the last.
at::Tensor mask_of(const std::vector<int64_t>& lengths) {
  at::Tensor mask = torch::zeros({kTexts, kLength}, at::kLong);
  for (size_t i = 0; i < lengths.size(); ++i) {
    const at::Tensor own = mask[static_cast<int64_t>(i)];
    (lengths[i] < 0 ? own.slice(0, kLength + lengths[i]) : own.slice(0, 0, lengths[i])).fill_(1);
  }
  return mask;
}

const std::vector<int64_t> kLengths = {30, 3, 40, 1, 12};

TEST_CASE("rows are taken and put back as ATen does, with gradients of the second order") {
  const at::Tensor x = torch::randn({6, 2, 3}, at::kDouble).requires_grad_();
  const at::Tensor rows = torch::tensor({1, 4, 5}, at::kLong);
  CHECK(torch::equal(kernels::taken_rows(x, rows), x.index_select(0, rows)));
  CHECK(torch::equal(kernels::taken_rows(x.transpose(1, 2), rows), x.transpose(1, 2).index_select(0, rows)));
  CHECK(kernels::taken_rows(x, torch::arange(6)).equal(x));
  CHECK(kernels::put_rows(x, torch::arange(6), 6).equal(x));
  const at::Tensor y = torch::randn({3, 2, 3}, at::kDouble).requires_grad_();
  CHECK(torch::equal(kernels::put_rows(y, rows, 6), torch::zeros({6, 2, 3}, at::kDouble).index_copy(0, rows, y)));
  CHECK(kernels::taken_rows(x, rows.slice(0, 0, 0)).sizes() == at::IntArrayRef({0, 2, 3}));
  CHECK(kernels::put_rows(y.slice(0, 0, 0), rows.slice(0, 0, 0), 2).equal(torch::zeros({2, 2, 3}, at::kDouble)));
  const auto second_order = [&](bool by_aten) {
    const at::Tensor taken = by_aten ? x.index_select(0, rows) : kernels::taken_rows(x, rows);
    const at::Tensor put = by_aten ? torch::zeros({6, 2, 3}, at::kDouble).index_copy(0, rows, y.square())
                                   : kernels::put_rows(y.square(), rows, 6);
    const at::Tensor value = taken.pow(3).sum() + put.pow(3).sum();
    const auto first = torch::autograd::grad({value}, {x, y}, {}, std::nullopt, true);
    return torch::autograd::grad({first[0].square().sum() + first[1].square().sum()}, {x, y});
  };
  const auto own = second_order(false), expected = second_order(true);
  for (size_t i = 0; i < 2; ++i) CHECK(torch::allclose(own[i], expected[i]));
}

TEST_CASE("padding, and all but the first position of the last block, are not computed where nothing reads them") {
  const PassOutcome fused = trained(blocks(kClassified), true, mask_of(kLengths));
  const std::vector<int64_t> some = {1, 96, kFeatures};  // 86 positions, and 10 more for a multiple of 32
  CHECK(fused.sizes.at("q1 + k1 + v1") == some);
  CHECK(fused.sizes.at("o1") == some);
  CHECK(fused.sizes.at("f1 + g1") == some);
  CHECK(fused.sizes.at("q2 + k2 + v2") == some);
  CHECK(fused.sizes.at("a1") == some);
  CHECK(fused.sizes.at("a2") == some);
  for (const std::string layer : {"o2", "d2 + s2 + n2", "f2 + g2", "first"}) {
    CHECK(fused.sizes.at(layer) == std::vector<int64_t>{kTexts, 1, kFeatures});
  }
}

TEST_CASE("what is read, gradients and draws are those of all positions, wherever the padding is") {
  const std::vector<std::vector<int64_t>> all_lengths = {
      kLengths, {40, 40, 40, 40, 40}, {-30, -3, -40, -1, -12}, {20, -3, 0, 7, 0}, {0, 0, 0, 0, 0}};
  for (const double dropout : {0.0, 0.3, 1.0}) {
    CAPTURE(dropout);
    for (const std::vector<int64_t>& lengths : all_lengths) {
      const at::Tensor mask = mask_of(lengths);
      CAPTURE(mask.sum(1));
      const std::string layers = blocks(kClassified, dropout);
      check_close(trained(layers, true, mask), trained(layers, false, mask));
      check_close(trained(layers, true, mask, {}, false), trained(layers, false, mask, {}, false));
      check_close(trained(layers, true, mask.to(at::kInt) * 7), trained(layers, false, mask));
      check_close(trained(layers, true, mask == 0), trained(layers, false, mask));  // true marks padding
    }
    const at::Tensor mask = mask_of(kLengths);
    at::Tensor holes = mask.clone();
    holes.slice(1, 0, kLength, 3).zero_();
    check_close(trained(blocks(kClassified, dropout), true, holes),
                trained(blocks(kClassified, dropout), false, holes));
    for (const std::string mode : {"mean", "cls", "max"}) {
      const std::string pooled = "- {type: TokenPooling, mode: " + mode + ", inputs: [b2, mask]}\n";
      const std::string layers = blocks(pooled, dropout);
      check_close(trained(layers, true, mask), trained(layers, false, mask));
      check_close(trained(layers, true, holes), trained(layers, false, holes));
    }
    const std::string unmasked = blocks(kClassified, dropout, false);
    const PassOutcome fused = trained(unmasked, true, mask);
    CHECK(fused.sizes.at("f1 + g1")[1] == kLength);
    CHECK(fused.sizes.at("f2 + g2")[1] == 1);
    check_close(fused, trained(unmasked, false, mask));
  }
}

TEST_CASE("PyTorch's Transformer layers leave out padding, too") {
  const at::Tensor mask = mask_of(kLengths);
  const at::Tensor added = torch::zeros({kTexts, kLength}).masked_fill(mask == 0, -1e9);
  for (const std::string norm_first : {"false", "true"}) {
    for (const std::string dropout : {"0", "0.3"}) {
      CAPTURE(norm_first);
      CAPTURE(dropout);
      const std::string layers =
          "- {type: LayerNorm, inputs: x, name: b0}\n- {type: TransformerEncoder, num_layers: 2, nhead: 2, "
          "dim_feedforward: "
          "40, batch_first: true, norm_first: " +
          norm_first + ", dropout: " + dropout +
          ", name: enc, inputs: [b0, mask]}\n- {type: LayerNorm}\n- {type: Select, dim: 1, index: 0}\n- {type: Linear, "
          "out_features: 3}\n";
      const PassOutcome fused = trained(layers, true, mask), plain = trained(layers, false, mask);
      // A dropout reads attention's output in another order of memory, and all of the sequence with it.
      const int64_t expected = dropout == "0" ? 96 : kLength;
      CHECK(fused.sizes.at("enc.layers.0.linear1 + enc.layers.0.activation")[1] == expected);
      CHECK(fused.sizes.at("enc.layers.1.linear2")[1] == 1);
      check_close(fused, plain);
      check_close(trained(layers, true, mask == 0), plain);
      check_close(trained(layers, true, added), plain);
    }
  }
}

TEST_CASE("all positions are computed where something reads them") {
  const at::Tensor mask = mask_of(kLengths);
  const std::vector<std::string> ends = {
      "- {type: Linear, out_features: 3, inputs: b2}\n",
      "- {type: Mean, dim: 1, inputs: b2}\n",
      "- {type: Select, dim: 1, index: 1, inputs: b2}\n",
      "- {type: Select, dim: 0, index: 0, inputs: b2}\n",
  };
  for (const std::string& end : ends) {
    CAPTURE(end);
    const PassOutcome fused = trained(blocks(end, 0.2), true, mask);
    CHECK(fused.sizes.at("f2 + g2") == std::vector<int64_t>{kTexts, kLength, kFeatures});
    check_close(fused, trained(blocks(end, 0.2), false, mask));
  }
}

TEST_CASE("layers that are computed again leave out the same positions, and give the same bits") {
  const at::Tensor mask = mask_of(kLengths);
  std::string layers = "- type: Sequential\n  name: all\n  inputs: [x, mask]\n  layers:\n";
  std::istringstream lines(blocks("", 0.3));
  for (std::string line; std::getline(lines, line);) layers += "    " + line + "\n";
  layers += "- {type: Select, dim: 1, index: 0}\n- {type: Linear, out_features: 3}\n";
  PlanOptions again;
  again.recomputed = {"all"};
  const PassOutcome once = trained(layers, true, mask), twice = trained(layers, true, mask, again);
  CHECK(once.sizes.at("all.f2 + all.g2")[1] == 1);
  check_close(twice, trained(layers, false, mask));
  for (size_t i = 0; i < once.tensors.size(); ++i) {
    CAPTURE(i);
    REQUIRE(once.tensors[i].defined() == twice.tensors[i].defined());
    if (once.tensors[i].defined()) CHECK(torch::equal(once.tensors[i], twice.tensors[i]));
  }
  again.recomputed = {"all.f1", "all.h2"};
  check_close(trained(layers, true, mask, again), trained(layers, false, mask));
}

TEST_CASE("draws that follow the order of memory keep it: what lies in another order is computed as a whole") {
  const std::string turned =
      "- {type: Transpose, dim0: 0, dim1: 1, inputs: x, name: t}\n- {type: Tanh, name: tanh}\n- {type: Transpose, "
      "dim0: 0, "
      "dim1: 1, name: u}\n- {type: Dropout, p: 0.5, name: drop}\n- {type: Linear, out_features: 4, name: fc}\n- {type: "
      "Select, dim: 1, index: 0}\n";
  const at::Tensor mask = mask_of(kLengths);
  const PassOutcome fused = trained(turned, true, mask);
  CHECK(fused.sizes.at("fc")[1] == 1);
  check_close(fused, trained(turned, false, mask));
  const std::string no_product =
      "- {type: Transpose, dim0: 0, dim1: 1, inputs: x}\n- {type: Tanh}\n- {type: Transpose, dim0: 0, dim1: 1}\n- "
      "{type: "
      "Select, dim: 1, index: 0}\n- {type: Dropout, p: 0.5}\n- {type: Linear, out_features: 4}\n";
  check_close(trained(no_product, true, mask), trained(no_product, false, mask));
}

TEST_CASE("a mask of other sequences is refused where they are first read") {
  const auto graph = build_seeded(blocks(kClassified), texts());
  PlanOptions options;
  options.fusions = std::make_shared<const FusionRegistry>(catalog().fusions);
  const Plan plan = make_plan(*graph, options);
  const at::Tensor x = torch::randn({kTexts, kLength, kFeatures});
  for (const at::Tensor& mask :
       {torch::ones({kTexts, kLength + 8}, at::kLong), torch::ones({kTexts + 1, kLength}, at::kLong),
        torch::zeros({kTexts, kLength / 2}, at::kLong)}) {
    CHECK_THROWS_AS(plan.run({x, mask}), ComponentError);
  }
}

TEST_CASE("under autocast what is read differs by bfloat16's rounding alone") {
  const at::Tensor mask = mask_of(kLengths);
  const auto under_autocast = [&](bool is_fused) {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::increment_nesting();
    const PassOutcome outcome = trained(blocks(kClassified, 0.3), is_fused, mask);
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    return outcome;
  };
  const PassOutcome fused = under_autocast(true), plain = under_autocast(false);
  CHECK(torch::allclose(fused.tensors[0].to(at::kFloat), plain.tensors[0].to(at::kFloat), 0.05, 0.02));
  CHECK(torch::equal(fused.tensors[1], plain.tensors[1]));
}

}  // namespace
}  // namespace trainrun
