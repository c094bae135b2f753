// Attention within texts of which some positions are side by side equals, in float64, that of whole texts.
#include "registry/kernels/ragged_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_dot_product_attention_math.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>
#include <random>
#include <string>
#include <vector>

#include "registry/kernels/row_moves.h"
#include "tests/cpu_paths.h"
#include "tests/doctest.h"
#include "tests/support.h"
#include "tests/tensor_errors.h"

using namespace trainrun::kernels;
using trainrun::test::check_with_gradients;
using trainrun::test::vector_paths;

namespace {

enum class TextForm { kPrefixes, kSuffixes, kHoles, kWhole };

struct RaggedCase {
  int64_t texts, length, heads, key_heads, features;
  TextForm form = TextForm::kPrefixes;
  double dropout = 0;
  bool is_bfloat16 = false;
};

std::string text_of_ragged(const RaggedCase& c) {
  return std::to_string(c.texts) + " texts of " + std::to_string(c.length) + ", " + std::to_string(c.heads) +
         " heads, " + std::to_string(c.key_heads) + " of keys, " + std::to_string(c.features) + " features, form " +
         std::to_string(static_cast<int>(c.form)) + ", dropout " + std::to_string(c.dropout) +
         (c.is_bfloat16 ? ", bfloat16" : "");
}

/// Masks of random lengths; the second text's is 0 everywhere, the third's has a single 1.
RaggedTexts random_texts(const RaggedCase& c) {
  const at::Tensor places = at::ones({c.texts, c.length}, at::kLong).cumsum(1) - 1;
  const at::Tensor lengths = at::randint(1, c.length + 1, {c.texts, 1}, at::kLong);
  at::Tensor mask = places < lengths;
  if (c.form == TextForm::kSuffixes) mask = mask.flip(1);
  if (c.form == TextForm::kHoles) mask = at::randint(0, 3, {c.texts, c.length}, at::kLong) > 0;
  if (c.form == TextForm::kWhole) mask = at::ones({c.texts, c.length}, at::kBool);
  mask = mask.to(at::kLong);
  if (c.texts > 1 && c.form != TextForm::kWhole) mask[1].zero_();
  if (c.texts > 2 && c.form != TextForm::kWhole) mask[2].zero_()[c.length - 1].fill_(3);
  at::Tensor read = mask != 0;
  read.select(1, 0).fill_(true);  // the first, and some of padding
  read.select(1, c.length / 2).logical_or_(lengths.squeeze(1) > 2);
  read = read.logical_or(mask.sum(1, true) == 0);
  return {read.flatten().nonzero().squeeze(1), mask};
}

/// The output and the gradients of `inputs` by ATen's operations in float64, for whole texts.
std::vector<at::Tensor> by_whole_texts(const RaggedCase& c, const RaggedTexts& texts,
                                       const std::vector<at::Tensor>& inputs, const at::Tensor& grad_y) {
  std::vector<at::Tensor> exact, heads;
  for (const at::Tensor& input : inputs) {
    exact.push_back(input.detach().to(at::kDouble).requires_grad_());
    const at::Tensor whole = put_rows(exact.back().squeeze(0), texts.rows, c.texts * c.length);
    heads.push_back(whole.unflatten(0, {c.texts, c.length}).unflatten(2, {-1, c.features}).transpose(1, 2));
  }
  const int64_t times = c.heads / c.key_heads;
  const at::Tensor mask = (texts.mask == 0).to(at::kDouble).view({c.texts, 1, 1, c.length}) *
                          static_cast<double>(std::numeric_limits<float>::lowest() / 2);
  std::optional<at::Tensor> kept;
  if (c.dropout > 0) {
    kept = at::ones({c.texts, c.heads, c.length, c.length}).bernoulli_(1 - c.dropout).to(at::kBool);
  }
  // Where all scores are far below 0, float32 has no room for what the product adds; in float64 neither.
  const auto [mixed, weights] =
      at::_scaled_dot_product_attention_math(heads[0], heads[1].repeat_interleave(times, 1),
                                             heads[2].repeat_interleave(times, 1), mask, c.dropout, false, kept);
  const at::Tensor y = taken_rows(mixed.transpose(1, 2).flatten(2).flatten(0, 1), texts.rows).unsqueeze(0);
  std::vector<at::Tensor> results = torch::autograd::grad({y}, exact, {grad_y.to(at::kDouble)});
  results.insert(results.begin(), y.detach());
  return results;
}

/// Queries, keys and values as parts of one product, as the fusion of three Linears gives them.
std::vector<at::Tensor> parts_of_product(const RaggedCase& c, const RaggedTexts& texts) {
  const int64_t queries = c.heads * c.features, keys = c.key_heads * c.features;
  const at::Tensor product = at::randn({1, texts.rows.numel(), queries + 2 * keys});
  std::vector<at::Tensor> parts =
      product.to(c.is_bfloat16 ? at::kBFloat16 : at::kFloat).split_with_sizes({queries, keys, keys}, 2);
  for (at::Tensor& part : parts) part = part.detach().requires_grad_();
  return parts;
}

void check_ragged(const RaggedCase& c, CpuPath path) {
  CAPTURE(text_of_ragged(c));
  CAPTURE(name_of(path));
  const RaggedTexts texts = random_texts(c);
  const std::vector<at::Tensor> inputs = parts_of_product(c, texts);
  const AttentionTerms terms{{}, c.dropout, false, {}};
  const at::Tensor grad_y = at::randn(inputs[0].sizes()).to(inputs[0].scalar_type());
  REQUIRE(supports_ragged_attention(inputs[0], inputs[1], inputs[2], c.heads, texts, terms));
  at::manual_seed(7);
  const std::vector<at::Tensor> exact = by_whole_texts(c, texts, inputs, grad_y);
  const at::Tensor next = at::randn({1});
  at::manual_seed(7);
  const at::Tensor y = ragged_attention(inputs[0], inputs[1], inputs[2], c.heads, texts, terms, path);
  CHECK(at::randn({1}).equal(next));
  check_with_gradients(y, inputs, grad_y, exact, c.is_bfloat16 ? 1e-2 : 3e-6);
}

TEST_CASE("ragged attention: chosen sizes equal float64 on every path") {
  for (const CpuPath path : vector_paths()) {
    for (const TextForm form : {TextForm::kPrefixes, TextForm::kSuffixes, TextForm::kHoles, TextForm::kWhole}) {
      for (const double dropout : {0.0, 0.3}) {
        for (const bool is_bfloat16 : {false, true}) {
          check_ragged({4, 40, 2, 2, 32, form, dropout, is_bfloat16}, path);
          check_ragged({3, 17, 4, 2, 7, form, dropout, is_bfloat16}, path);
          check_ragged({1, 16, 1, 1, 128, form, dropout, is_bfloat16}, path);
          check_ragged({5, 130, 3, 1, 64, form, dropout, is_bfloat16}, path);
        }
      }
    }
  }
}

TEST_CASE("ragged attention: any sizes equal float64") {
  std::mt19937 random(11);  // NOLINT(bugprone-random-generator-seed): the same on every run
  const auto below = [&](int64_t end) { return static_cast<int64_t>(random() % static_cast<uint64_t>(end)); };
  const std::vector<CpuPath> paths = vector_paths();
  if (paths.empty()) return;
  for (int i = 0, rounds = trainrun::test::fuzz_rounds(40); i < rounds; ++i) {
    RaggedCase c{1 + below(6), 16 + below(100), 0, 1 + below(3), 1 + below(128)};
    c.heads = c.key_heads * (1 + below(3));
    c.form = static_cast<TextForm>(below(4));
    c.dropout = below(2) == 0 ? 0 : 0.25;
    c.is_bfloat16 = below(2) == 0;
    check_ragged(c, paths[static_cast<size_t>(below(static_cast<int64_t>(paths.size())))]);
  }
}

TEST_CASE("ragged attention: gradients of the second order are ATen's") {
  const RaggedCase c{3, 20, 2, 2, 8, TextForm::kHoles, 0.2};
  const RaggedTexts texts = random_texts(c);
  const std::vector<at::Tensor> inputs = parts_of_product(c, texts);
  const at::Tensor direction = at::randn(inputs[0].sizes());
  const auto second = [&](bool is_ragged) {
    at::manual_seed(3);
    at::Tensor y;
    if (is_ragged) {
      y = ragged_attention(inputs[0], inputs[1], inputs[2], c.heads, texts, {{}, c.dropout, false, {}});
    } else {
      std::vector<at::Tensor> heads;
      for (const at::Tensor& x : inputs) {
        const at::Tensor whole = put_rows(x.squeeze(0), texts.rows, c.texts * c.length);
        heads.push_back(whole.unflatten(0, {c.texts, c.length}).unflatten(2, {-1, c.features}).transpose(1, 2));
      }
      const at::Tensor mask =
          (texts.mask == 0).to(at::kFloat).view({c.texts, 1, 1, c.length}) * (std::numeric_limits<float>::lowest() / 2);
      y = std::get<0>(at::_scaled_dot_product_attention_math(
          heads[0], heads[1], heads[2], mask, c.dropout, false,
          at::ones({c.texts, c.heads, c.length, c.length}).bernoulli_(1 - c.dropout).to(at::kBool)));
      y = taken_rows(y.transpose(1, 2).flatten(2).flatten(0, 1), texts.rows).unsqueeze(0);
    }
    const auto first = torch::autograd::grad({y}, inputs, {direction}, std::nullopt, true);
    return torch::autograd::grad({first[0].square().sum() + first[1].square().sum() + first[2].square().sum()}, inputs);
  };
  const auto own = second(true), expected = second(false);
  for (size_t i = 0; i < 3; ++i) CHECK(at::allclose(own[i], expected[i], 1e-4, 1e-5));
}

TEST_CASE("ragged attention: what it does not compute is refused") {
  const RaggedCase c{3, 20, 2, 2, 8};
  const RaggedTexts texts = random_texts(c);
  const std::vector<at::Tensor> x = parts_of_product(c, texts);
  const auto supports = [&](const RaggedTexts& of, const AttentionTerms& terms) {
    return supports_ragged_attention(x[0], x[1], x[2], c.heads, of, terms);
  };
  if (best_cpu_path() == CpuPath::kGeneric) return;
  CHECK(supports(texts, {}));
  CHECK_FALSE(supports(texts, {{}, 1, false, {}}));
  CHECK_FALSE(supports(texts, {{}, 0, true, {}}));
  CHECK_FALSE(supports({texts.rows, texts.mask.to(at::kBool)}, {}));
  CHECK_FALSE(supports({texts.rows, at::zeros({1, 20}, at::kLong)}, {}));       // rows of more texts
  CHECK_FALSE(supports({texts.rows + 20, at::zeros({4, 20}, at::kLong)}, {}));  // none of the first
  CHECK_FALSE(supports({texts.rows.slice(0, 1), texts.mask}, {}));              // another number
}

}  // namespace
