#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <c10/core/GradMode.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/linear.h>

#include <cmath>

#include "registry/components/adapters/low_rank.h"
#include "registry/components/adapters/peft_folder.h"
#include "registry/kinds/layer_shapes.h"

// Adapters that add a matrix of low rank, B A, to a weight. Sources: Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large
// Language Models"; Liu et al. 2024, "DoRA: Weight-Decomposed Low-Rank Adaptation"; names and semantics of peft 0.21.

namespace trainrun {
namespace {

using nlohmann::json;

constexpr const char* kMagnitude = "lora_magnitude_vector";

/// 16 for 16.0, as peft writes lora_alpha.
json number_json(double number) {
  const auto whole = static_cast<int64_t>(number);
  return static_cast<double>(whole) == number ? json(whole) : json(number);
}

void check_lora_folder(const PeftFolder& folder, bool is_dora) {
  folder.require_type("LORA", is_dora ? "DoRA" : "LoRA");
  if (folder.flag("use_dora", false) != is_dora) {
    folder.fail("use_dora", is_dora ? "it is a LoRA; write type: LoRA" : "it is a DoRA; write type: DoRA");
  }
  folder.require("bias", {"none"}, "adapters that train biases are not available");
  folder.require("lora_bias", {false}, "a bias of B is not available");
  folder.require("init_lora_weights", {true, false, "gaussian", "eva", "orthogonal"},
                 "such initial values change the base model's weights; in Python, load it with the base model, call "
                 "merge_and_unload() and save the whole model");
  for (const char* key :
       {"alpha_pattern", "layer_replication", "trainable_token_indices", "target_parameters", "use_qalora",
        "alora_invocation_tokens", "arrow_config", "use_bdlora", "velora_config", "monteclora_config", "kasa_config"}) {
    folder.require(key, {json::object(), json::array(), false}, "this variant of LoRA is not available");
  }
}

/// What LoRA and DoRA have in common.
struct LowRank {
  std::optional<int64_t> r;
  std::optional<double> alpha;
  std::optional<double> dropout;
  std::optional<bool> use_rslora;

  template <class Own>
  static void describe_low_rank(Fields<Own>& f) {
    const std::string otherwise = "; null: the value in weights, else ";
    f.optional("r", &Own::r).at_least(1).doc("rank r of the update B A" + otherwise + "8");
    f.optional("alpha", &Own::alpha).greater_than(0).doc("B A is multiplied by alpha / r" + otherwise + "8");
    f.optional("dropout", &Own::dropout)
        .at_least(0)
        .less_than(1)
        .doc("dropout of the input of A, while training" + otherwise + "0");
    f.optional("use_rslora", &Own::use_rslora)
        .doc("multiply by alpha / sqrt(r) instead, as rank-stabilized LoRA does" + otherwise + "false");
  }

 protected:
  /// The factors, and an adapter with all but `operation` and `merged`.
  std::pair<Adapter, LowRankFactors> make(const AdapterInputs& in, const AdaptedWeight& layer, bool is_dora) const;

 private:
  int64_t rank(const AdapterInputs& in, const std::string& first_factor) const;
};

int64_t LowRank::rank(const AdapterInputs& in, const std::string& first_factor) const {
  constexpr int64_t kUsual = 8;
  if (!in.folder) return r.value_or(kUsual);
  const at::Tensor a = saved_tensor(in, first_factor);
  if (!a.defined() || a.dim() != 2 || a.size(0) < 1) {
    throw DataError(in.folder->path() + ": has no matrix " + in.name + "." + first_factor + " [r, in]");
  }
  if (!r || *r == a.size(0)) return a.size(0);
  throw LayerError("r is " + std::to_string(*r) + ", but that of " + in.folder->path() + " is " +
                   std::to_string(a.size(0)) + "; leave it out");
}

/// With gradients: values drawn as PyTorch draws the weight of a Linear, or of an Embedding's factor.
at::Tensor drawn(int64_t rows, int64_t columns, bool is_rows) {
  if (is_rows) return at::randn({rows, columns});
  return torch::nn::Linear(torch::nn::LinearOptions(columns, rows).bias(false))->weight.detach();
}

/// The same draws in the same order as peft's: each factor is drawn once when it is made, and one of them again.
void draw_factors(LowRankFactors& factors, const AdaptedWeight& layer, int64_t rank) {
  const c10::AutoGradMode no_gradients(false);
  factors.a = drawn(rank, layer.in_features, layer.is_rows);
  factors.b = drawn(layer.out_features, rank, layer.is_rows);
  if (layer.is_rows) {
    factors.a.zero_();
    factors.b.normal_();
  } else {
    torch::nn::init::kaiming_uniform_(factors.a, std::sqrt(5.0));  // as of a Linear
    factors.b.zero_();
  }
  factors.a = factors.a.to(layer.weight.options());
  factors.b = factors.b.to(layer.weight.options());
}

std::pair<Adapter, LowRankFactors> LowRank::make(const AdapterInputs& in, const AdaptedWeight& layer,
                                                 bool is_dora) const {
  constexpr double kUsualAlpha = 8;
  if (in.folder) check_lora_folder(*in.folder, is_dora);
  const std::string kind = layer.is_rows ? "lora_embedding_" : "lora_";
  const std::string end = layer.is_rows ? "" : ".weight";
  const int64_t own_rank = rank(in, kind + "A" + end);
  const double own_alpha = alpha.value_or(in.folder ? in.folder->number("lora_alpha", kUsualAlpha) : kUsualAlpha);
  const bool stabilizes = use_rslora.value_or(in.folder && in.folder->flag("use_rslora", false));
  const auto as_number = static_cast<double>(own_rank);
  LowRankFactors factors;
  factors.scale = own_alpha / (stabilizes ? std::sqrt(as_number) : as_number);
  factors.dropout = dropout.value_or(in.folder ? in.folder->number("lora_dropout", 0) : 0);
  if (factors.dropout < 0 || factors.dropout >= 1) in.folder->fail("lora_dropout", "must be at least 0 and below 1");
  draw_factors(factors, layer, own_rank);
  Adapter adapter;
  adapter.parameters = {{kind + "A" + end, factors.a}, {kind + "B" + end, factors.b}};
  adapter.config = {{"peft_type", "LORA"},
                    {"r", own_rank},
                    {"lora_alpha", number_json(own_alpha)},
                    {"lora_dropout", factors.dropout},
                    {"use_rslora", stabilizes},
                    {"use_dora", is_dora},
                    {"fan_in_fan_out", layer.is_transposed},
                    {"bias", "none"},
                    {"init_lora_weights", true}};
  return {std::move(adapter), std::move(factors)};
}

struct Lora : LowRank {
  static void describe(Fields<Lora>& f) { describe_low_rank(f); }
  Adapter build(const AdapterInputs& in) const {
    const AdaptedWeight layer(in, "LoRA", true);
    auto [adapter, factors] = make(in, layer, false);
    adapter.operation = layer.is_rows ? lora_rows(in, layer, factors) : lora_linear(in, factors);
    adapter.merged = [layer, factors = factors]() -> NamedTensors {
      return {{layer.weight_name, at::add(layer.weight, layer.as_own(factors.product()), factors.scale)}};
    };
    return adapter;
  }
};

struct Dora : LowRank {
  static void describe(Fields<Dora>& f) { describe_low_rank(f); }
  Adapter build(const AdapterInputs& in) const {
    const AdaptedWeight layer(in, "DoRA", false);
    auto [adapter, factors] = make(in, layer, true);
    const at::Tensor magnitude = at::ones({layer.out_features}, layer.weight.options().requires_grad(false));
    adapter.parameters.emplace(adapter.parameters.begin(), kMagnitude, magnitude);
    adapter.operation = dora_linear(in, layer, factors, magnitude);
    adapter.begin = [layer, factors = factors, magnitude] {
      const c10::AutoGradMode no_gradients(false);
      at::Tensor(magnitude).copy_(row_norms(layer, factors));
    };
    adapter.merged = [layer, factors = factors, magnitude]() -> NamedTensors {
      const at::Tensor growth = (magnitude / row_norms(layer, factors)).unsqueeze(1);
      const at::Tensor sum = at::add(layer.as_linear(), factors.product(), factors.scale);
      return {{layer.weight_name, layer.as_own(growth * sum)}};
    };
    return adapter;
  }
};

}  // namespace

void add_loras(AdapterRegistry& adapters) {
  adapters.add<Lora>("LoRA", "adds a matrix of low rank to the weight: W + alpha / r * B A");
  adapters.add<Dora>("DoRA",
                     "LoRA's sum gives the directions of the weight's rows; their lengths are learned separately");
}

}  // namespace trainrun
