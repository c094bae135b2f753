#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/nn/module.h>

#include <filesystem>

#include "registry/graph/outside_shape_mode.h"
#include "registry/graph/shape_mode.h"
#include "registry/kinds/layer.h"
#include "registry/tensors/rare_kernels.h"

namespace trainrun {
namespace {

/// Tells a module of TorchScript training from evaluation. It is a child of what holds the module's tensors, since the
/// graph around a whole model takes over what that one holds, but not the model itself.
class ScriptMode : public torch::nn::Module {
 public:
  explicit ScriptMode(torch::jit::Module script) : script_(std::move(script)) {}
  void train(bool on) override {
    torch::nn::Module::train(on);
    if (script_.hasattr("training")) script_.setattr("training", on);
  }

 private:
  torch::jit::Module script_;  // the same module: copies share what they hold
};

/// A module of TorchScript with its own tensors, under their names, as one of ours.
class ScriptModule : public torch::nn::Module {
 public:
  explicit ScriptModule(torch::jit::Module script) : script_(std::move(script)) {
    for (const auto& item : script_.named_parameters(false)) {
      register_parameter(item.name, item.value, item.value.requires_grad());
    }
    for (const auto& item : script_.named_buffers(false)) register_buffer(item.name, item.value);
    for (const auto& item : script_.named_children()) {
      register_module(item.name, std::make_shared<ScriptModule>(item.value));
    }
    register_module("(mode)", std::make_shared<ScriptMode>(script_));
  }

  Tensors run(const Tensors& inputs) {
    // The optimizing executor computes the first calls in another way than those after, which would tell a resumed run
    // from one that was never stopped.
    const torch::jit::GraphOptimizerEnabledGuard plain(false);
    return tensors_of(script_.forward({inputs.begin(), inputs.end()}));
  }

 private:
  static Tensors tensors_of(const c10::IValue& value) {
    if (value.isTensor()) return {value.toTensor()};
    if (value.isTensorList()) return value.toTensorVector();
    TORCH_CHECK(value.isTuple(), "it returns ", value.tagKind(), ", but a layer gives a tensor, or several");
    Tensors all;
    for (const c10::IValue& element : value.toTupleRef().elements()) {
      TORCH_CHECK(element.isTensor(), "it returns a tuple with ", element.tagKind(), ", but a layer gives tensors");
      all.push_back(element.toTensor());
    }
    return all;
  }

  torch::jit::Module script_;
};

/// torch.jit.load. In the shape mode without the weights.
struct TorchScript {
  std::string path;
  static void describe(Fields<TorchScript>& f) {
    f.required("path", &TorchScript::path).doc("a file of torch.jit.save, from torch.jit.script or torch.jit.trace");
  }

  Layer build(const LayerInputs&) const {
    const auto module = std::make_shared<ScriptModule>(load());
    const Operation::Traits unknown = {.in_place = true, .view = true, .random = true};
    Layer layer(module, [module](const Tensors& inputs) { return module->run(inputs); }, unknown);
    layer.is_whole_model = true;
    return layer;
  }

 private:
  torch::jit::Module load() const {
    if (!std::filesystem::is_regular_file(path)) throw LayerError("there is no file " + path);
    register_rare_kernels();  // what the model calls is not known
    const OutsideShapeMode reading;
    try {
      return torch::jit::load(path, c10::Device(ShapeMode::active() ? c10::kMeta : c10::kCPU));
    } catch (const c10::Error& error) {
      throw LayerError(path + " is not a file of torch.jit.save: " + error.what_without_backtrace());
    }
  }
};

}  // namespace

void add_torch_scripts(LayerRegistry& layers) {
  layers.add<TorchScript>("TorchScript",
                          "a model that Python saved by torch.jit; inputs and outputs are those of its forward");
}

}  // namespace trainrun
