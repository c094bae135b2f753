#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <c10/core/GradMode.h>

#include "registry/components/adapters/adapted_weight.h"
#include "registry/components/adapters/peft_folder.h"
#include "registry/kinds/layer_shapes.h"

// (IA)^3. Source: Liu et al. 2022, "Few-Shot Parameter-Efficient Fine-Tuning is Better and Cheaper than In-Context
// Learning"; names and semantics of peft 0.21.

namespace trainrun {
namespace {

using nlohmann::json;

constexpr const char* kVector = "ia3_l";

/// Multiplies the layer's output, or its input, feature by feature.
class ScaledLinear : public Operation {
 public:
  ScaledLinear(std::shared_ptr<const Operation> base, at::Tensor vector, bool scales_input)
      : base_(std::move(base)), vector_(std::move(vector)), scales_input_(scales_input) {}
  Tensors run(const Tensors& inputs) const override {
    if (scales_input_) {
      Tensors scaled = inputs;
      scaled[0] = (inputs[0] * vector_.flatten()).to(inputs[0].scalar_type());
      return base_->run(scaled);
    }
    Tensors outputs = base_->run(inputs);
    outputs[0] = (outputs[0] * vector_.flatten()).to(outputs[0].scalar_type());
    return outputs;
  }
  Traits traits() const override { return traits_with_adapter(*base_, false); }

 private:
  std::shared_ptr<const Operation> base_;
  at::Tensor vector_;
  bool scales_input_;
};

struct Ia3 {
  std::vector<NamePattern> feedforward;
  static void describe(Fields<Ia3>& f) {
    f.optional("feedforward", &Ia3::feedforward)
        .doc("patterns like those of target: adapted layers whose input, not their output, is multiplied");
  }

  Adapter build(const AdapterInputs& in) const {
    const AdaptedWeight layer(in, "IA3", false);
    if (in.folder) {
      in.folder->require_type("IA3", "IA3");
      if (!feedforward.empty()) throw LayerError("feedforward: " + in.folder->path() + " says that already");
    }
    const bool scales_input = is_feedforward(in, layer);
    const at::Tensor vector = ones_like_peft(layer, scales_input);
    Adapter adapter;
    adapter.parameters = {{kVector, vector}};
    adapter.operation = std::make_shared<ScaledLinear>(in.operation, vector, scales_input);
    adapter.merged = [layer, vector, scales_input]() -> NamedTensors {
      NamedTensors merged = {{layer.weight_name, layer.as_own(layer.as_linear() * vector)}};
      if (!scales_input && layer.bias.defined()) merged.emplace_back(layer.bias_name, layer.bias * vector.flatten());
      return merged;
    };
    adapter.config = {{"peft_type", "IA3"},
                      {"feedforward_modules", scales_input ? json::array({in.name}) : json::array()},
                      {"fan_in_fan_out", layer.is_transposed},
                      {"init_ia3_weights", true}};
    return adapter;
  }

 private:
  /// Of a folder the shape says it, [1, in] or [out, 1].
  bool is_feedforward(const AdapterInputs& in, const AdaptedWeight& layer) const {
    if (in.folder) {
      const at::Tensor saved = saved_tensor(in, kVector);
      return saved.defined() && saved.sizes() == at::IntArrayRef({1, layer.in_features});
    }
    if (feedforward.empty()) return false;
    const std::vector<bool> chosen = names_chosen(feedforward, in.layers, "adapted layer");
    for (size_t i = 0; i < in.layers.size(); ++i) {
      if (in.layers[i] == in.name) return chosen[i];
    }
    return false;
  }

  /// peft draws the vector, and then sets it to one; so that what is drawn later is the same, this does so, too.
  static at::Tensor ones_like_peft(const AdaptedWeight& layer, bool scales_input) {
    const c10::AutoGradMode no_gradients(false);
    const at::Tensor vector = scales_input ? at::randn({1, layer.in_features}) : at::randn({layer.out_features, 1});
    return vector.fill_(1).to(layer.weight.options());
  }
};

}  // namespace

void add_ia3s(AdapterRegistry& adapters) {
  adapters.add<Ia3>("IA3", "multiplies a layer's output, or its input, by a learned vector");
}

}  // namespace trainrun
