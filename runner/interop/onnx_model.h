#pragma once

#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "registry/graph/graph.h"
#include "registry/graph/onnx_graph.h"
#include "registry/kinds/layer.h"
#include "registry/tensors/files/safetensors.h"
#include "runner/model/model.h"

namespace trainrun {

/// A size, or the name of one that may be any.
using OnnxSize = std::variant<int64_t, std::string>;

/// What an ONNX file says of an input or output.
struct OnnxTensor {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<OnnxSize> shape;
};

struct OnnxModel {
  OnnxGraph graph;
  std::vector<OnnxTensor> inputs;
  std::vector<OnnxTensor> outputs;
  FileMetadata metadata = {};
  std::string name = "model";
};

/// Builds the model's graph, with the outputs that are wanted, for inputs like these; called in the shape mode. Throws
/// where they do not fit.
using GraphFor = std::function<std::shared_ptr<Graph>(const LayerInputs& inputs)>;

/// The model that `build` makes for `inputs`, in ONNX. `state`: its weights, by their state names. A dimension of an
/// input is left open where the model has the same weights for other sizes, and no layer's form has written its size
/// down: "batch", and "length", "height", "width". Throws RecipeError where layers have no form.
OnnxModel onnx_model_of(const GraphFor& build, const LayerInputs& inputs, const NamedTensors& state);

/// The same of a recipe's model in evaluation, adapters merged, for batches of `info`; the outputs are those that its
/// losses read. Throws also where the model would serve batches of one size alone.
OnnxModel onnx_model_of(const Recipe& recipe, const DatasetInfo& info, const Model& model);

/// Writes a .onnx file. ONNX's files hold at most 2 GB: where the weights take more, or if `external`, those of 1 KiB
/// and more go to a second one, `path`.data, without which it cannot be read; true where they do. Throws FileError.
bool write_onnx(const std::string& path, const OnnxModel& model, bool external = false);

}  // namespace trainrun
