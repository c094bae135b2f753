// Layers that the backward pass computes again: the numbers are those of layers that are computed once.
#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include "registry/graph/passes.h"
#include "registry/kinds/graph_builder.h"
#include "tests/registry/support.h"

namespace trainrun {
namespace {

using namespace test;

/// What two training passes leave, of which the second begins from the buffers of the first.
struct Outcome {
  Tensors tensors;  // outputs, the input's gradient, the parameters' and the buffers
  at::Tensor random;
};

Outcome train_twice(const std::string& layers, const at::Tensor& example, const std::vector<std::string>& recomputed,
                    bool autocast = false) {
  torch::manual_seed(7);
  const auto graph = build(layers, example);
  PlanOptions options;
  options.recomputed = recomputed;
  options.fusions = {&catalog().fusions, [](const FusionRegistry*) {}};
  const Plan plan = make_plan(*graph, options);
  Outcome outcome;
  for (int pass = 0; pass < 2; ++pass) {
    const at::Tensor input = torch::randn_like(example).set_requires_grad(true);
    Tensors outputs;
    at::autocast::set_autocast_enabled(at::kCPU, autocast);
    at::autocast::increment_nesting();
    outputs = plan.run({input * 1});
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::Tensor loss = torch::zeros({});
    for (const at::Tensor& output : outputs) {
      outcome.tensors.push_back(output.detach());
      loss = loss + (output.to(torch::kFloat) * torch::randn(output.sizes())).sum();
    }
    loss.backward();
    outcome.tensors.push_back(input.grad());
  }
  for (const auto& parameter : graph->parameters()) outcome.tensors.push_back(parameter.grad());
  for (const auto& buffer : graph->buffers()) outcome.tensors.push_back(buffer.clone());
  outcome.random = torch::rand({3});
  return outcome;
}

void check_same(const std::string& layers, const at::Tensor& example, const std::vector<std::string>& recomputed,
                bool autocast = false) {
  CAPTURE(layers);
  CAPTURE(autocast);
  const Outcome once = train_twice(layers, example, {}, autocast);
  const Outcome again = train_twice(layers, example, recomputed, autocast);
  REQUIRE(again.tensors.size() == once.tensors.size());
  for (size_t i = 0; i < once.tensors.size(); ++i) {
    CAPTURE(i);
    REQUIRE(again.tensors[i].defined() == once.tensors[i].defined());
    if (once.tensors[i].defined()) CHECK(torch::equal(again.tensors[i], once.tensors[i]));
  }
  CHECK(torch::equal(again.random, once.random));
}

/// How many bytes the forward pass keeps alive.
class CountingAllocator : public c10::Allocator {
 public:
  explicit CountingAllocator(c10::Allocator& inner) : inner_(inner) {}
  c10::DataPtr allocate(size_t bytes) override {
    c10::DataPtr given = inner_.allocate(bytes);
    alive += bytes;
    auto* context = new Block{std::move(given), bytes};
    return {context->data.get(), context, &CountingAllocator::release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t count) const override { default_copy_data(to, from, count); }
  static size_t live() { return alive; }

 private:
  struct Block {
    c10::DataPtr data;
    size_t bytes;
  };
  static void release(void* context) {
    auto* block = static_cast<Block*>(context);
    alive -= block->bytes;
    delete block;
  }
  c10::Allocator& inner_;
  static inline size_t alive = 0;
};

constexpr const char* kBlocks = R"(
- type: Sequential
  name: a
  layers: [{type: Conv2d, out_channels: 6, kernel_size: 3, padding: 1}, BatchNorm2d, {type: ReLU, inplace: true}, {type: Dropout, p: 0.4}]
- type: Residual
  name: b
  main: [{type: Conv2d, out_channels: 6, kernel_size: 3, padding: 1, bias: false}, BatchNorm2d, {type: Dropout2d, p: 0.5}]
- {type: ReLU, inplace: true}
- {type: MaxPool2d, kernel_size: 2}
- {type: Sequential, name: c, layers: [ReLU, {type: MaxPool2d, kernel_size: 2}, Flatten, {type: Linear, out_features: 5}, Sigmoid]}
)";

}  // namespace

TEST_CASE("layers that are computed again give the same outputs, gradients, buffers and random numbers, bit for bit") {
  const at::Tensor images = torch::zeros({4, 3, 8, 8});
  for (const bool autocast : {false, true}) {
    check_same(kBlocks, images, {"a"}, autocast);
    check_same(kBlocks, images, {"a", "b", "c"}, autocast);
    check_same(kBlocks, images, {"a.0", "a.1", "a.2", "a.3", "b.main", "2", "3", "c.3"}, autocast);
    check_same(kBlocks, images, {"a", "a.0", "b", "b.sum", "c", "c.4"}, autocast);
  }
  check_same(
      "[{type: Sequential, name: s, layers: [{type: Flatten}, {type: ReLU, inplace: true}, {type: Linear, "
      "out_features: 3}]}]",
      torch::zeros({4, 2, 3}), {"s"});  // it writes into a view of its input
  check_same(
      "[{type: LSTM, name: r, hidden_size: 5, num_layers: 2, dropout: 0.3, batch_first: true}, "
      "{type: Linear, out_features: 2}]",
      torch::zeros({4, 6, 3}), {"r"});
  check_same(
      "[{type: TransformerEncoderLayer, name: t, nhead: 2, dim_feedforward: 12, dropout: 0.2}, "
      "{type: TransformerEncoderLayer, name: u, nhead: 2, dim_feedforward: 12, dropout: 0.2}]",
      torch::zeros({6, 4, 8}), {"t", "u.linear2"});  // linear1 would no longer be fused with its activation
}

TEST_CASE("a layer with several outputs, and one whose input others read too, are computed again") {
  check_same(R"(
- {type: Linear, out_features: 8, name: stem}
- {type: Sequential, name: s, layers: [Tanh, {type: Linear, out_features: 8}, Sigmoid]}
- {type: Chunk, name: halves, chunks: 2, inputs: s, outputs: [left, right]}
- {type: Mul, inputs: [left, right], name: product}
- {type: Concat, dim: 1, inputs: [product, stem, left]}
)",
             torch::zeros({4, 8}), {"s", "halves"});
}

TEST_CASE("a convolution that passes on what it reads is computed again, alone or with who reads that") {
  const std::string layers = R"(
- {type: Conv2d, out_channels: 24, kernel_size: 1, name: stem}
- type: Sequential
  name: s
  layers:
    - Tanh
    - {type: Residual, name: r, main: [{type: Conv2d, name: c, out_channels: 24, kernel_size: 1}, Tanh]}
- {type: Conv2d, out_channels: 24, kernel_size: 1, name: d}
- {type: Add, inputs: [d, s]}
)";
  const at::Tensor images = torch::zeros({4, 16, 4, 4}).contiguous(at::MemoryFormat::ChannelsLast);
  for (const bool autocast : {false, true}) {
    check_same(layers, images, {"s"}, autocast);
    check_same(layers, images, {"s.r.main.c", "d"}, autocast);
    check_same(layers, images, {"s.r.main", "stem"}, autocast);
  }
}

TEST_CASE("of layers that are computed again only the inputs are kept") {
  const auto kept = [](const std::vector<std::string>& recomputed) {
    const auto graph = build(
        "[{type: Sequential, name: s, layers: [{type: Linear, out_features: 1000}, Tanh, {type: Linear, out_features: "
        "1000}, Tanh, {type: Linear, out_features: 1000}, Tanh]}, {type: Linear, out_features: 1}]",
        torch::zeros({2, 1000}));
    PlanOptions options;
    options.recomputed = recomputed;
    const Plan plan = make_plan(*graph, options);
    const at::Tensor input = torch::randn({500, 1000});
    c10::Allocator* plain = c10::GetAllocator(c10::kCPU);
    CountingAllocator counting(*plain);
    constexpr uint8_t kPriority = 1;  // that of the allocator of large blocks, which may come after it in this process
    c10::SetAllocator(c10::kCPU, &counting, kPriority);
    const size_t before = CountingAllocator::live();
    std::optional<Tensors> outputs = plan.run({input});
    const size_t after = CountingAllocator::live();
    (*outputs)[0].sum().backward();
    outputs.reset();
    for (const auto& parameter : graph->parameters()) parameter.mutable_grad().reset();
    CHECK(CountingAllocator::live() == before);  // nothing is left behind
    c10::SetAllocator(c10::kCPU, plain, kPriority);
    return after - before;
  };
  constexpr size_t kActivation = size_t{500} * 1000 * sizeof(float);
  CHECK(kept({}) >= 3 * kActivation);
  CHECK(kept({"s"}) < 2 * kActivation);  // its output, which the last layer keeps, and little else
}

TEST_CASE("where nobody asks for gradients, nothing is computed again") {
  const auto graph =
      build("[{type: Sequential, name: s, layers: [{type: Dropout, p: 0.5}, BatchNorm1d]}]", torch::zeros({4, 3}));
  PlanOptions options;
  options.recomputed = {"s"};
  const Plan plan = make_plan(*graph, options);
  REQUIRE(plan.steps.size() == 1);
  CHECK(plan.steps[0].type == "Sequential");
  REQUIRE(plan.steps[0].inside);
  CHECK(plan.steps[0].inside->steps.size() == 2);
  const torch::NoGradGuard no_gradients;
  const at::Tensor input = torch::randn({4, 3});
  torch::manual_seed(1);
  const at::Tensor output = plan.run({input})[0];
  torch::manual_seed(1);
  CHECK(torch::equal(output, graph->forward({input})[0]));
}

TEST_CASE("brackets within a layer divide what is computed again") {
  const auto graph =
      build("[{type: Sequential, name: s, layers: [Tanh, {type: Linear, out_features: 4, name: fc}, Tanh, Tanh]}]",
            torch::zeros({2, 4}));
  int calls = 0;
  PlanOptions options;
  options.recomputed = {"s"};
  options.brackets = {{"s.fc", [&] { ++calls; }, [&](Tensors&) { ++calls; }}};
  const Plan plan = make_plan(*graph, options);
  Strings steps;
  for (const PlanStep& step : plan.steps) {
    steps.push_back(step.layer + (step.inside ? " " + std::to_string(step.inside->steps.size()) : ""));
  }
  CHECK(steps == Strings{"s 1", "s.fc", "s 1", "s.fc", "s 2"});
  plan.run({torch::randn({3, 4}).set_requires_grad(true)})[0].sum().backward();
  CHECK(calls == 2);  // the backward pass does not repeat them
}

TEST_CASE("a layer whose input a later one has overwritten is refused, and names a way out") {
  const auto graph = build(R"(
- {type: Linear, out_features: 4, name: fc}
- {type: Sequential, name: s, layers: [{type: Linear, out_features: 4, bias: false}]}
- {type: ReLU, inplace: true, name: relu, inputs: fc}
- {type: Add, inputs: [s, relu]}
)",
                           torch::zeros({2, 4}));
  PlanOptions options;
  options.recomputed = {"s"};
  const at::Tensor sum = make_plan(*graph, options).run({torch::randn({3, 4})})[0].sum();
  CHECK_THROWS_WITH_AS(sum.backward(), doctest::Contains("changed its input in place; write inplace: false"), Error);
}

}  // namespace trainrun
