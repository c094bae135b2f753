#include "registry/kernels/short_attention.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_dot_product_attention_math.h>
#include <ATen/ops/count_nonzero.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/cpu_paths.h"
#include "tests/doctest.h"
#include "tests/support.h"
#include "tests/tensor_errors.h"
#include "tests/threads.h"

using namespace trainrun::kernels;
using trainrun::test::check_with_gradients;
using trainrun::test::error_of;
using trainrun::test::Threads;
using trainrun::test::vector_paths;

namespace {

struct AttentionCase {
  int64_t batch, heads, key_heads, queries, keys, features;
  bool is_causal = false;
  int mask = 0;  // 1: booleans of keys, 2: numbers of queries and keys, 3: numbers of each head
  double dropout = 0;
  bool is_bfloat16 = false;
};

std::string text_of_attention(const AttentionCase& c) {
  std::string text = std::to_string(c.batch) + " x " + std::to_string(c.heads) + " heads";
  text += ", " + std::to_string(c.key_heads) + " of keys, " + std::to_string(c.queries) + " queries, ";
  text += std::to_string(c.keys) + " keys of " + std::to_string(c.features);
  return text + (c.is_causal ? ", causal" : "") + ", mask " + std::to_string(c.mask) + ", dropout " +
         std::to_string(c.dropout) + (c.is_bfloat16 ? ", bfloat16" : "");
}

/// Queries, keys and values as a packed projection of sequences gives them: [N, heads, T, D] in memory [T, N, heads, D].
std::vector<at::Tensor> inputs_of(const AttentionCase& c) {
  const auto type = c.is_bfloat16 ? at::kBFloat16 : at::kFloat;
  std::vector<at::Tensor> inputs;
  for (const auto& [heads, length] : {std::pair(c.heads, c.queries), {c.key_heads, c.keys}, {c.key_heads, c.keys}}) {
    const at::Tensor packed = at::randn({length, c.batch, 3, heads, c.features}).to(type);
    inputs.push_back(packed.select(2, 1).permute({1, 2, 0, 3}).detach().requires_grad_());
  }
  return inputs;
}

AttentionTerms terms_of(const AttentionCase& c) {
  AttentionTerms terms{{}, c.dropout, c.is_causal, {}};
  if (c.mask == 1) {
    terms.mask = at::rand({c.batch, 1, 1, c.keys}) < 0.7;
    terms.mask.select(3, 0).fill_(true);
  }
  if (c.mask == 2) terms.mask = at::randn({c.queries, c.keys});
  if (c.mask == 3) terms.mask = at::randn({1, c.heads, c.queries, c.keys});
  return terms;
}

/// The output and the gradients by ATen's operations in float64, with the dropout's draws of these inputs.
std::vector<at::Tensor> by_definition(const AttentionCase& c, const std::vector<at::Tensor>& inputs,
                                      const AttentionTerms& terms, const at::Tensor& grad_y) {
  std::vector<at::Tensor> exact;
  for (const at::Tensor& input : inputs) exact.push_back(input.detach().to(at::kDouble).requires_grad_());
  const int64_t times = c.heads / c.key_heads;
  std::optional<at::Tensor> mask, kept;
  if (terms.mask.defined()) mask = terms.mask.to(at::kDouble);
  if (c.mask == 1) mask->masked_fill_(terms.mask.logical_not(), -std::numeric_limits<double>::infinity());
  if (c.dropout > 0) {
    kept = at::ones({c.batch, c.heads, c.queries, c.keys}).bernoulli_(1 - c.dropout).to(at::kBool);
  }
  const auto [y, weights] =
      at::_scaled_dot_product_attention_math(exact[0], exact[1].repeat_interleave(times, 1),
                                             exact[2].repeat_interleave(times, 1), mask, c.dropout, c.is_causal, kept);
  std::vector<at::Tensor> results = torch::autograd::grad({y}, exact, {grad_y.to(at::kDouble)});
  results.insert(results.begin(), y.detach());
  return results;
}

void check_attention(const AttentionCase& c, CpuPath path) {
  CAPTURE(text_of_attention(c));
  CAPTURE(name_of(path));
  const std::vector<at::Tensor> inputs = inputs_of(c);
  const AttentionTerms terms = terms_of(c);
  const at::Tensor grad_y = at::randn(inputs[0].sizes()).to(inputs[0].scalar_type());
  REQUIRE(supports_short_attention(inputs[0], inputs[1], inputs[2], terms));
  at::manual_seed(7);
  const std::vector<at::Tensor> exact = by_definition(c, inputs, terms, grad_y);
  at::manual_seed(7);
  const at::Tensor y = short_attention(inputs[0], inputs[1], inputs[2], terms, path);
  check_with_gradients(y, inputs, grad_y, exact, c.is_bfloat16 ? 1e-2 : 3e-6);
}

}  // namespace

TEST_CASE("short attention: a query all of whose keys are masked by a large number has their gradients") {
  for (const CpuPath path : vector_paths()) {
    CAPTURE(name_of(path));
    std::vector<at::Tensor> inputs = inputs_of({2, 2, 2, 16, 24, 8});
    AttentionTerms terms;
    terms.mask = at::zeros({2, 1, 1, 24});
    terms.mask[1].fill_(std::numeric_limits<float>::lowest() / 2);
    const at::Tensor grad_y = at::randn(inputs[0].sizes());
    // ATen's flash attention on the CPU loses them as well, and gives as many times too large ones as there are keys.
    const auto expected = torch::autograd::grad(
        {std::get<0>(at::_scaled_dot_product_attention_math(inputs[0], inputs[1], inputs[2], terms.mask))}, inputs,
        {grad_y});
    const auto own =
        torch::autograd::grad({short_attention(inputs[0], inputs[1], inputs[2], terms, path)}, inputs, {grad_y});
    for (size_t i = 0; i < 3; ++i) {
      CAPTURE(i);
      CHECK(at::allclose(own[i], expected[i], 1e-4, 1e-5));
    }
  }
}

TEST_CASE("short attention: chosen sizes equal float64 on every path") {
  for (const CpuPath path : vector_paths()) {
    for (const AttentionCase& c : std::vector<AttentionCase>{{2, 3, 3, 64, 64, 32, true},
                                                             {1, 2, 2, 33, 33, 64, true},
                                                             {2, 2, 2, 8, 16, 1},
                                                             {3, 4, 2, 5, 1, 6},
                                                             {2, 2, 2, 1, 1, 4, true, 0, 0.4},
                                                             {2, 3, 3, 3, 1, 20, false, 2, 0, true},
                                                             {1, 2, 1, 40, 70, 24, false, 1},
                                                             {1, 4, 2, 65, 65, 64, false, 3},
                                                             {2, 2, 2, 31, 512, 128, false, 2},
                                                             {1, 1, 1, 512, 512, 16, true},
                                                             {1, 8, 2, 100, 100, 40, true, 0, 0.25},
                                                             {2, 2, 2, 48, 47, 32, false, 1, 0.1},
                                                             {1, 2, 2, 700, 20, 8, true}}) {
      check_attention(c, path);
      AttentionCase narrow = c;
      narrow.is_bfloat16 = true;
      check_attention(narrow, path);
    }
  }
}

TEST_CASE("short attention: random sizes equal float64 on every path and with any number of threads") {
  std::mt19937 random(11);  // NOLINT(bugprone-random-generator-seed): the same on every run
  const auto from = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
  };
  for (int i = 0; i < trainrun::test::fuzz_rounds(120); ++i) {
    const int64_t key_heads = from(1, 3);
    AttentionCase c{from(1, 3), key_heads * from(1, 2), key_heads, from(8, 90), from(16, 90), from(1, 70)};
    if (i % 10 == 0) c.keys = from(90, 512);
    c.is_causal = from(0, 2) == 0;
    if (!c.is_causal) c.mask = static_cast<int>(from(0, 3));
    if (from(0, 3) == 0) c.dropout = 0.3;
    c.is_bfloat16 = from(0, 2) == 0;
    const Threads threads(static_cast<int>(from(1, 3)));
    for (const CpuPath path : vector_paths()) check_attention(c, path);
  }
}

TEST_CASE("short attention: a dropout draws what ATen's attention would, and leaves the generator alike") {
  if (vector_paths().empty()) return;
  const AttentionCase c{2, 3, 3, 40, 48, 32, false, 0, 0.2};
  const std::vector<at::Tensor> in = inputs_of(c);
  at::manual_seed(3);
  const at::Tensor theirs = at::scaled_dot_product_attention(in[0], in[1], in[2], {}, c.dropout);
  const at::Tensor state = at::detail::getDefaultCPUGenerator().get_state();
  at::manual_seed(3);
  const at::Tensor ours = short_attention(in[0], in[1], in[2], terms_of(c));
  CHECK(at::detail::getDefaultCPUGenerator().get_state().equal(state));
  CHECK(error_of(ours, theirs.detach().to(at::kDouble)) < 1e-6);
}

TEST_CASE("short attention: scores of a query that sees a single key have a gradient of exactly 0, as a softmax's") {
  for (const CpuPath path : vector_paths()) {
    for (const AttentionCase& c : std::vector<AttentionCase>{{2, 3, 3, 5, 1, 24},
                                                             {2, 4, 2, 40, 1, 17, false, 0, 0.3},
                                                             {3, 2, 2, 1, 1, 64, true},
                                                             {1, 2, 2, 4, 1, 32, false, 2, 0, true}}) {
      CAPTURE(text_of_attention(c));
      CAPTURE(name_of(path));
      const std::vector<at::Tensor> inputs = inputs_of(c);
      const at::Tensor y = short_attention(inputs[0], inputs[1], inputs[2], terms_of(c), path);
      const auto gradients = torch::autograd::grad({y}, inputs, {at::randn(y.sizes()).to(y.scalar_type())});
      CHECK(at::count_nonzero(gradients[0]).item<int64_t>() == 0);
      CHECK(at::count_nonzero(gradients[1]).item<int64_t>() == 0);
      CHECK(at::count_nonzero(gradients[2]).item<int64_t>() > 0);
    }
  }
}

TEST_CASE("short attention: a query without any key, NaN and infinities") {
  if (vector_paths().empty()) return;
  const AttentionCase c{1, 2, 2, 20, 20, 16};
  const std::vector<at::Tensor> in = inputs_of(c);
  AttentionTerms terms;
  terms.mask = at::ones({20, 20}).to(at::kBool);
  terms.mask.select(0, 5).fill_(false);
  const at::Tensor y = short_attention(in[0], in[1], in[2], terms);
  const at::Tensor theirs = at::scaled_dot_product_attention(in[0], in[1], in[2], terms.mask);
  CHECK(y.select(2, 5).eq(0).all().item<bool>());
  CHECK(error_of(y, theirs.detach().to(at::kDouble)) < 1e-6);
  const auto gradients = torch::autograd::grad({y}, in, {at::ones(y.sizes())});
  const auto expected = torch::autograd::grad({theirs}, in, {at::ones(y.sizes())});
  for (size_t i = 0; i < 3; ++i) CHECK(error_of(gradients[i], expected[i].to(at::kDouble)) < 1e-6);

  for (const double special : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    const at::Tensor broken = in[0].detach().clone();
    broken.select(2, 3).fill_(special);
    const at::Tensor found = short_attention(broken, in[1], in[2], {});
    const at::Tensor wanted = at::scaled_dot_product_attention(broken, in[1], in[2]);
    CHECK(found.isnan().equal(wanted.isnan()));
    CHECK(found.select(2, 3).isnan().all().item<bool>());
  }
}

TEST_CASE("short attention: a gradient that is NaN stays away from keys that its query does not see") {
  for (const CpuPath path : vector_paths()) {
    CAPTURE(name_of(path));
    const std::vector<at::Tensor> inputs = inputs_of({1, 1, 1, 20, 20, 8, true});
    const at::Tensor y = short_attention(inputs[0], inputs[1], inputs[2], {.is_causal = true}, path);
    at::Tensor grad_y = at::randn(y.sizes());
    grad_y.select(2, 2).fill_(std::numeric_limits<float>::quiet_NaN());
    const auto gradients = torch::autograd::grad({y}, inputs, {grad_y});
    CHECK(gradients[1].narrow(2, 0, 3).isnan().all().item<bool>());
    CHECK_FALSE(gradients[1].narrow(2, 3, 17).isnan().any().item<bool>());
  }
}

TEST_CASE("short attention: gradients of the second order are ATen's") {
  if (vector_paths().empty()) return;
  for (const AttentionCase& c :
       std::vector<AttentionCase>{{1, 2, 2, 12, 16, 8}, {1, 2, 1, 16, 16, 8, true}, {2, 2, 2, 9, 20, 4, false, 1}}) {
    const std::vector<at::Tensor> in = inputs_of(c);
    const AttentionTerms terms = terms_of(c);
    const auto second = [&](const at::Tensor& y) {
      const auto first = torch::autograd::grad({y.square().sum()}, {in[0]}, {}, true, true);
      return torch::autograd::grad({first[0].square().sum()}, in);
    };
    const auto found = second(short_attention(in[0], in[1], in[2], terms));
    std::optional<at::Tensor> mask;
    if (terms.mask.defined()) mask = terms.mask.logical_not().to(at::kFloat) * -1e30;
    const int64_t times = c.heads / c.key_heads;
    const auto [y, weights] = at::_scaled_dot_product_attention_math(
        in[0], in[1].repeat_interleave(times, 1), in[2].repeat_interleave(times, 1), mask, 0, c.is_causal);
    const auto expected = second(y);
    for (size_t i = 0; i < 3; ++i) CHECK(error_of(found[i], expected[i].to(at::kDouble)) < 1e-5);
  }
}

TEST_CASE("short attention: gradients of the second order where queries are made of keys") {
  if (vector_paths().empty()) return;
  const at::Tensor x = at::randn({1, 2, 16, 8}).requires_grad_();
  const auto second = [&](const auto& attention) {
    const at::Tensor key = x * 2, query = key.sin();
    const auto first = torch::autograd::grad({attention(query, key).square().sum()}, {x}, {}, true, true);
    return torch::autograd::grad({first[0].square().sum()}, {x})[0];
  };
  const at::Tensor found = second([](const auto& q, const auto& k) { return short_attention(q, k, k, {}); });
  const at::Tensor expected =
      second([](const auto& q, const auto& k) { return std::get<0>(at::_scaled_dot_product_attention_math(q, k, k)); });
  CHECK(error_of(found, expected.to(at::kDouble)) < 1e-5);
}

TEST_CASE("short attention: packed queries, keys and values give what they give apart, and so do their gradients") {
  for (const CpuPath path : vector_paths()) {
    for (const int64_t time : {0, 1}) {
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
        for (const double dropout : {0.0, 0.3}) {
          const int64_t batch = 3, length = 40, heads = 2, features = 24;
          const at::Tensor packed =
              at::randn({time == 1 ? batch : length, time == 1 ? length : batch, 3 * heads * features})
                  .to(type)
                  .requires_grad_();
          AttentionTerms terms{{}, dropout, time == 1, {}};
          if (time == 0) terms.mask = at::rand({batch, 1, 1, length}) < 0.8;
          at::manual_seed(2);
          const auto y = packed_attention(packed, heads, time, terms, path);
          REQUIRE(y);
          std::vector<at::Tensor> parts = packed.chunk(3, -1);
          for (at::Tensor& part : parts) {
            part = part.unflatten(-1, {heads, features});
            part = time == 1 ? part.transpose(1, 2) : part.permute({1, 2, 0, 3});
          }
          at::manual_seed(2);
          const at::Tensor apart = short_attention(parts[0], parts[1], parts[2], terms, path);
          const at::Tensor expected = (time == 1 ? apart.transpose(1, 2) : apart.permute({2, 0, 1, 3})).flatten(2);
          CHECK(y->equal(expected));
          CHECK(y->is_contiguous());
          const at::Tensor grad_y = at::randn(y->sizes()).to(type);
          const auto found = torch::autograd::grad({*y}, {packed}, {grad_y}, true);
          CHECK(found[0].equal(torch::autograd::grad({expected}, {packed}, {grad_y}, true)[0]));
          if (type == at::kBFloat16) continue;
          const auto second = [&](const at::Tensor& of) {
            const auto first = torch::autograd::grad({of}, {packed}, {grad_y}, true, true);
            return torch::autograd::grad({first[0].square().sum()}, {packed})[0];
          };
          CHECK(error_of(second(*y), second(expected).to(at::kDouble)) < 1e-5);
        }
      }
    }
  }
  CHECK_FALSE(packed_attention(at::randn({2, 40, 70}), 2, 1, {}));
  CHECK_FALSE(packed_attention(at::randn({2, 144, 40}).transpose(1, 2), 2, 1, {}));
}

TEST_CASE("short attention: the output lies in memory as the queries do") {
  if (vector_paths().empty()) return;
  const std::vector<at::Tensor> in = inputs_of({2, 3, 3, 16, 16, 8});
  CHECK(short_attention(in[0], in[1], in[2], {}).permute({2, 0, 1, 3}).is_contiguous());
}

TEST_CASE("short attention: what it leaves to ATen") {
  const auto supports = [](const AttentionCase& c, const AttentionTerms& terms) {
    const std::vector<at::Tensor> in = inputs_of(c);
    return supports_short_attention(in[0], in[1], in[2], terms);
  };
  CHECK(supports({1, 1, 1, 8, 16, 4}, {}) == !vector_paths().empty());
  CHECK_FALSE(supports({1, 1, 1, 7, 16, 4}, {}));
  CHECK_FALSE(supports({1, 1, 1, 8, 15, 4}, {}));
  CHECK_FALSE(supports({1, 1, 1, 1, 2, 4}, {}));
  CHECK(supports({1, 1, 1, 1, 1, 4}, {}) == !vector_paths().empty());
  CHECK_FALSE(supports({1, 1, 1, 8, 513, 4}, {}));
  CHECK_FALSE(supports({1, 1, 1, 8, 16, 129}, {}));
  CHECK_FALSE(supports({1, 1, 1, 8, 16, 4}, {.mask = at::zeros({8, 16}).requires_grad_()}));
  CHECK_FALSE(supports({1, 1, 1, 8, 16, 4}, {.mask = at::zeros({8, 16}), .is_causal = true}));
  CHECK_FALSE(supports({1, 1, 1, 8, 16, 4}, {.mask = at::zeros({8, 17})}));
  CHECK_FALSE(supports({1, 1, 1, 8, 16, 4}, {.dropout = 1}));
  const at::Tensor wide = at::randn({1, 1, 16, 8}, at::kDouble);
  CHECK_FALSE(supports_short_attention(wide, wide, wide, {}));
}
