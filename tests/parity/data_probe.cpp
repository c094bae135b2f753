#include "tests/parity/data_probe.h"

#include <ATen/ops/arange.h>

#include <numeric>
#include <optional>

#include "registry/data/partition.h"
#include "registry/kinds/dataset_facts.h"
#include "runner/data/pixels.h"
#include "runner/data/sampler.h"

namespace trainrun {
namespace {

using nlohmann::json;

DatasetInfo info_of(const TensorMap& fields, std::optional<int64_t> num_classes) {
  DatasetInfo info;
  for (const auto& [name, tensor] : fields) {
    const auto shape = tensor.sizes().slice(1).vec();
    info.fields.push_back({name, shape, tensor.scalar_type(), name == "label" ? num_classes : std::nullopt});
  }
  return info;
}

}  // namespace

json run_transform(Request& request) {
  const auto component = request.spec<Component<TransformKind>>();
  const auto num_classes = request.has("num_classes") ? std::optional(request.number("num_classes")) : std::nullopt;
  DatasetInfo info = info_of(request.tensors("input"), num_classes);
  const auto learning = component.build({info});
  const auto transform = component.build({info});
  transform->describe(info);
  if (learning->learns()) {
    int64_t half = 0;
    learning->learn([&]() -> std::optional<Batch> {
      if (half == 2) return std::nullopt;
      Batch batch;
      for (const auto& [name, tensor] : request.tensors("learn")) {
        const int64_t first = tensor.size(0) / 3;
        batch.set(name, half == 0 ? tensor.narrow(0, 0, first) : tensor.narrow(0, first, tensor.size(0) - first));
      }
      ++half;
      return batch;
    });
    transform->set_learnt(json::parse(learning->learnt().dump()));
  }
  Batch batch;
  for (const auto& [name, tensor] : request.tensors("input")) batch.set(name, tensor);
  std::vector<int64_t> numbers(static_cast<size_t>(batch.size()));
  std::iota(numbers.begin(), numbers.end(), 0);
  transform->apply(batch, SampleDraws({static_cast<uint64_t>(request.number("seed"))}, numbers));
  for (const FieldInfo& field : info.fields) {
    const at::Tensor& tensor = batch.at(field.name);
    if (tensor.sizes().slice(1) != at::IntArrayRef(field.shape) || tensor.scalar_type() != field.dtype) {
      throw Error(field.name + " is not as described");
    }
    request.give("output", field.name, tensor);
  }
  return json::object();
}

json run_dataset(Request& request) {
  const auto dataset = request.spec<Component<DatasetKind>>().build({});
  dataset->open();
  if (request.has("learnt") && !request["learnt"].is_null()) {
    dataset->set_learnt(request["learnt"]);
  } else {
    dataset->learn(at::arange(dataset->size(), at::kLong));
  }
  Batch batch = dataset->get(at::arange(dataset->size(), at::kLong));
  float64_to_floats()->apply(batch, SampleDraws({}, {}));
  const DatasetInfo info = dataset->info();
  json names = json::array();
  for (size_t i = 0; i < info.fields.size(); ++i) {
    const FieldInfo& field = info.fields[i];
    const at::Tensor& tensor = batch.at(field.name);
    std::vector<int64_t> sizes = tensor.sizes().slice(1).vec();
    const bool is_padded = dataset->facts().field(field.name).padding.has_value();  // to the longest of this batch
    if (is_padded && !sizes.empty() && sizes[0] <= field.shape.at(0)) sizes[0] = field.shape[0];
    if (sizes != field.shape || tensor.scalar_type() != field.dtype) {
      throw Error(field.name + " is not as described");
    }
    names.push_back(field.name);
    request.give("output", field.name, tensor);
  }
  if (request.has("epoch")) {
    const OwnOrder order = dataset->facts().own_order;
    request.give("order", "0", order(static_cast<uint64_t>(request.number("seed")), request.number("epoch")));
  }
  return {
      {"learnt", dataset->learnt()}, {"fields", names}, {"target", info.target}, {"notes", dataset->facts().notes()}};
}

json run_partition(Request& request) {
  Partition partition{request["weights"].get<std::vector<int64_t>>()};
  partition.classes = request["classes"].get<std::vector<int64_t>>();
  partition.groups = request["groups"].get<std::vector<int64_t>>();
  if (!request["seed"].is_null()) partition.seed = static_cast<uint64_t>(request.number("seed"));
  return {{"parts", partition.parts()}};
}

json run_sampler(Request& request) {
  const TensorMap drawing = request.tensors("drawing");
  SamplerOptions options;
  options.seed = static_cast<uint64_t>(request.number("seed"));
  options.drawing.num_samples = request.number("num_samples");
  options.drawing.replacement = request["replacement"].get<bool>();
  if (drawing.contains("weights")) options.drawing.weights = drawing.at("weights");
  if (drawing.contains("strata")) options.drawing.strata = drawing.at("strata");
  const Sampler sampler(drawing.begin()->second.numel(), options);
  request.give("order", "0", sampler.indices(request.number("epoch")));
  return json::object();
}

}  // namespace trainrun
