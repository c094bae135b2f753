#include "runner/interop/model_export.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/frontend/tracer.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "registry/formats/files/file_io.h"
#include "registry/tensors/files/safetensors.h"
#include "registry/tensors/rare_kernels.h"
#include "runner/base/ascii_name.h"
#include "runner/interop/exported_data.h"
#include "runner/interop/script_names.h"
#include "runner/model/unread_fields.h"

namespace trainrun {
namespace {

/// `module` as TorchScript has modules: with the same tensors, by the same names where TorchScript can have them. `notes`:
/// gets those that became others.
torch::jit::Module mirrored(torch::nn::Module& module, const std::shared_ptr<torch::jit::CompilationUnit>& unit,
                            const std::string& type, std::vector<std::string>& notes) {
  torch::jit::Module result(c10::QualifiedName(type), unit, /*shouldMangle=*/true);
  ScriptNames names;
  for (const auto& item : module.named_parameters(/*recurse=*/false)) {
    if (item.value().defined()) result.register_parameter(names.attribute(item.key()), item.value(), false);
  }
  for (const auto& item : module.named_buffers(/*recurse=*/false)) {
    if (item.value().defined()) result.register_buffer(names.attribute(item.key()), item.value());
  }
  for (const auto& item : module.named_children()) {
    if (item.key().starts_with('(')) continue;  // what layers keep besides tensors, under a name that is no identifier
    const std::string own_type = type + ".m" + ascii_name(item.key(), "_", '_');
    result.register_module(names.attribute(item.key()), mirrored(*item.value(), unit, own_type, notes));
  }
  for (const auto& [name, other] : names.changed()) {
    notes.push_back("TorchScript cannot have the name '" + name + "': in the file, the layer or weight is '" + other +
                    "'");
  }
  return result;
}

/// The names of the arguments for these fields.
std::vector<std::string> arguments_for(const std::vector<std::string>& fields, std::vector<std::string>& notes) {
  ScriptNames names;
  std::vector<std::string> arguments;
  for (const std::string& field : fields) arguments.push_back(names.argument(field));
  for (const auto& [field, argument] : names.changed()) {
    notes.push_back("TorchScript cannot have the name '" + field + "': the argument of forward for this field is '" +
                    argument + "'");
  }
  return arguments;
}

/// A batch of so many samples, of the fields that the model reads.
Batch example(TrainedRun& run, int64_t samples) {
  const Recipe& recipe = run.recipe();
  const DatasetInfo info = recipe.dataset.eval ? evaluation_info(recipe) : training_info(recipe);
  Batch batch;
  for (const std::string& name : run.model().graph().input_names()) {
    const FieldInfo* field = info.find(name);
    if (!field) throw Error("export: the model reads '" + name + "', but the data set does not describe that field");
    std::vector<int64_t> sizes = {samples};
    sizes.insert(sizes.end(), field->shape.begin(), field->shape.end());
    const at::TensorOptions options = at::TensorOptions(run.device()).dtype(field->dtype);
    batch.set(name, at::isFloatingType(field->dtype) ? at::rand(sizes, options) : at::zeros(sizes, options));
  }
  return batch;
}

torch::jit::Stack stack_of(const Batch& batch, const std::vector<std::string>& names) {
  torch::jit::Stack stack;
  for (const std::string& name : names) stack.emplace_back(batch.at(name));
  return stack;
}

/// What the model says of a batch: the outputs that its losses read.
Tensors outputs_for(TrainedRun& run, const Batch& batch) {
  const Tensors all = run.model().forward(batch);
  const std::vector<size_t>& slots = run.model().graph().outputs();
  Tensors outputs;
  for (const size_t slot : outputs_of_losses(run.recipe(), run.model())) {
    outputs.push_back(all.at(static_cast<size_t>(std::find(slots.begin(), slots.end(), slot) - slots.begin())));
  }
  return outputs;
}

/// A tensor, or several as a tuple.
c10::IValue value_of(const Tensors& outputs) {
  if (outputs.size() == 1) return outputs[0];
  return c10::ivalue::Tuple::create(std::vector<c10::IValue>(outputs.begin(), outputs.end()));
}

Tensors tensors_in(const c10::IValue& value) {
  if (value.isTensor()) return {value.toTensor()};
  Tensors tensors;
  for (const c10::IValue& element : value.toTupleRef().elements()) tensors.push_back(element.toTensor());
  return tensors;
}

void require_same(TrainedRun& run, torch::jit::Module& module, int64_t samples) {
  const Batch batch = example(run, samples);
  const Tensors expected = outputs_for(run, batch);
  Tensors found;
  try {
    found = tensors_in(module.forward(stack_of(batch, fields_read(run.model().graph()))));
  } catch (const std::exception& error) {
    throw Error(std::string("export: the TorchScript module does not run for ") + std::to_string(samples) +
                " samples: " + error.what());
  }
  const auto is_same = [](const at::Tensor& a, const at::Tensor& b) {
    return a.sizes() == b.sizes() && at::allclose(a, b, 1e-4, 1e-5);
  };
  if (std::equal(found.begin(), found.end(), expected.begin(), expected.end(), is_same)) return;
  throw Error(
      "export: the TorchScript module and the model give different outputs: a layer computes something that a trace "
      "does not record, "
      "or depends on the number of samples; write --format safetensors");
}

}  // namespace

std::vector<size_t> outputs_of_losses(const Recipe& recipe, const Model& model) {
  std::vector<size_t> result;
  for (size_t i = 0; i < recipe.loss.size(); ++i) {
    for (const size_t slot : model.loss_slots(i)) {
      if (std::find(result.begin(), result.end(), slot) == result.end()) result.push_back(slot);
    }
  }
  if (result.empty()) result.push_back(model.graph().outputs().at(0));
  return result;
}

std::vector<std::string> export_overrides() { return {"training.fuse=false", "mixed_precision='no'"}; }

void export_safetensors(TrainedRun& run, const std::string& path) {
  const EvaluationScope scope(run.callbacks());
  write_safetensors(path, run.model().state_dict(), file_metadata(run));
}

void export_merged_safetensors(TrainedRun& run, const std::string& path) {
  if (!run.model().adapters()) throw Error("export: --merge: the recipe of this run has no adapters to merge");
  const EvaluationScope scope(run.callbacks());
  write_safetensors(path, run.model().merged_state_dict(), file_metadata(run));
}

void export_torchscript(TrainedRun& run, const std::string& path) {
  const EvaluationScope scope(run.callbacks());
  const at::NoGradGuard no_gradients;
  run.model().train(false);
  const auto unit = std::make_shared<torch::jit::CompilationUnit>();
  std::vector<std::string> notes;
  torch::jit::Module module = mirrored(run.model().graph(), unit, "__torch__.TrainrunModel", notes);
  const Batch batch = example(run, 2);
  const std::vector<std::string> names = fields_read(run.model().graph());
  const auto forward = [&](const torch::jit::Stack& inputs) {
    Batch traced = batch;  // what no layer reads is passed on, too
    for (size_t i = 0; i < names.size(); ++i) traced.set(names[i], inputs[i].toTensor());
    return torch::jit::Stack{value_of(outputs_for(run, traced))};
  };
  register_rare_kernels();
  const auto [state, outputs] = torch::jit::tracer::trace(
      stack_of(batch, names), forward, [](const at::Tensor&) { return std::string(); }, /*strict=*/true,
      /*force_outplace=*/false, &module, arguments_for(names, notes));
  module.type()->addMethod(unit->create_function(c10::QualifiedName(*module.type()->name(), "forward"), state->graph));
  module.eval();
  for (const int64_t samples : {1, 3}) require_same(run, module, samples);
  std::ostringstream bytes;
  torch::jit::ExtraFilesMap files;
  for (const auto& [name, content] : file_metadata(run)) files[name] = content;
  module.save(bytes, files);
  write_file_atomically(path, bytes.str());
  run.add_notes(notes);
}

}  // namespace trainrun
