#include <ATen/TensorOperators.h>
#include <c10/core/WrapDimMinimal.h>

#include <algorithm>
#include <numeric>

#include "registry/graph/positions.h"
#include "registry/kinds/layer.h"
#include "registry/layers/onnx_parts.h"

namespace trainrun {
namespace {

constexpr Operation::Traits kView = {.view = true, .capturable = true, .half_precision = true};

Operation::Traits view_of(bool position_wise) {
  Operation::Traits traits = kView;
  traits.position_wise = position_wise;
  return traits;
}

/// `x` with the dimensions from `begin` to before `end` replaced by `sizes`.
OnnxValue reshaped_within(OnnxForm& form, int64_t begin, int64_t end, const std::vector<int64_t>& sizes) {
  if (end == form.rank()) {
    std::vector<int64_t> shape(static_cast<size_t>(begin), 0);
    shape.insert(shape.end(), sizes.begin(), sizes.end());
    return form.reshape(form.input(), shape);
  }
  OnnxValues parts;
  if (begin > 0) parts.push_back(form.sizes(form.input(), 0, begin));
  parts.push_back(form.ints(sizes));
  parts.push_back(form.sizes(form.input(), end, form.rank()));
  return form.op("Reshape", {form.input(), form.op("Concat", parts, {{"axis", 0}})});
}

struct Identity {
  static void describe(Fields<Identity>&) {}
  Layer build(const LayerInputs&) const {
    Operation::Traits traits = kPointwise;
    traits.view = true;
    return layer_of_function([](const at::Tensor& input) { return input; }, traits);
  }
  void onnx(OnnxForm& form) const { form.give(form.input()); }
};

struct Flatten {
  int64_t start_dim = 1;
  int64_t end_dim = -1;
  static void describe(Fields<Flatten>& f) {
    f.optional("start_dim", &Flatten::start_dim).doc("the first dimension that is merged; 0 is the batch");
    f.optional("end_dim", &Flatten::end_dim).doc("the last dimension that is merged; -1 is the last of the tensor");
  }
  Layer build(const LayerInputs& in) const {
    return layer_of_function([*this](const at::Tensor& input) { return input.flatten(start_dim, end_dim); },
                             view_of(in.is_features(-1) && start_dim >= 2));
  }
  void onnx(OnnxForm& form) const {
    if (form.rank() == 0) return form.give(form.reshape(form.input(), {1}));
    form.give(reshaped_within(form, form.axis(start_dim), form.axis(end_dim) + 1, {-1}));
  }
};

struct Unflatten {
  int64_t dim = 1;
  std::vector<int64_t> unflattened_size;
  static void describe(Fields<Unflatten>& f) {
    f.required("dim", &Unflatten::dim).doc("the dimension that is split; 0 is the batch");
    f.required("unflattened_size", &Unflatten::unflattened_size)
        .at_least(-1)
        .doc("sizes to split it into; one may be -1 and is inferred");
  }
  Layer build(const LayerInputs& in) const {
    return layer_of_function([*this](const at::Tensor& input) { return input.unflatten(dim, unflattened_size); },
                             view_of(in.is_features(dim)));
  }
  void onnx(OnnxForm& form) const {
    form.give(reshaped_within(form, form.axis(dim), form.axis(dim) + 1, unflattened_size));
  }
};

struct Reshape {
  std::vector<int64_t> shape;
  static void describe(Fields<Reshape>& f) {
    f.required("shape", &Reshape::shape).at_least(-1).doc("the sizes after the batch; one may be -1 and is inferred");
  }
  void check(Checker& checker) const {
    if (std::count(shape.begin(), shape.end(), -1) > 1) checker.fail("shape", "only one size may be -1");
  }
  Layer build(const LayerInputs& in) const {
    const int64_t known = std::accumulate(shape.begin(), shape.end(), int64_t{1}, [](int64_t product, int64_t size) {
      return size == -1 ? product : product * size;
    });
    const bool open = std::count(shape.begin(), shape.end(), -1) == 1;
    const int64_t flowing = in.examples.at(0).numel() / in.shape()[0];
    if (open ? known == 0 || flowing % known != 0 : known != flowing) {
      throw LayerError("its " + std::to_string(flowing) + " elements do not make " + at::str(at::IntArrayRef(shape)));
    }
    const auto reshape = [shape = shape](const at::Tensor& input) {
      std::vector<int64_t> sizes = {input.size(0)};
      sizes.insert(sizes.end(), shape.begin(), shape.end());
      return input.reshape(sizes);
    };
    return layer_of_function(reshape, kView);
  }
  void onnx(OnnxForm& form) const { form.give(reshaped_within(form, 1, form.rank(), shape)); }
};

/// Reads the first of the positions [N, T, …] only.
class FirstPosition : public FunctionOperation, public ReadsPositions {
 public:
  using FunctionOperation::FunctionOperation;
  Reads reads(size_t) const override { return {{Read::kFirst}}; }
};

struct Select {
  int64_t dim = 0;
  int64_t index = 0;
  static void describe(Fields<Select>& f) {
    f.required("dim", &Select::dim).doc("the dimension that is removed; 0 is the batch");
    f.required("index", &Select::index).doc("index of the entry to take; -1 is the last");
  }
  Layer build(const LayerInputs& in) const {
    const bool is_first = index == 0 && in.shape().size() >= 3 && c10::maybe_wrap_dim(dim, in.examples[0].dim()) == 1;
    const auto select = [*this](const Tensors& inputs) -> Tensors { return {inputs.at(0).select(dim, index)}; };
    Layer layer;
    layer.operation = is_first ? std::make_shared<FirstPosition>(select, kView) : operation_of(select, kView);
    return layer;
  }
  void onnx(OnnxForm& form) const {
    form.give(form.op("Gather", {form.input(), form.number(static_cast<double>(index), at::kLong)}, {{"axis", dim}}));
  }
};

struct Permute {
  std::vector<int64_t> dims;
  static void describe(Fields<Permute>& f) {
    f.required("dims", &Permute::dims).doc("all dimensions in their new order: [0, 2, 1]; 0 is the batch");
  }
  Layer build(const LayerInputs& in) const {
    const auto rank = static_cast<int64_t>(in.shape().size());
    std::vector<int64_t> sorted;
    for (const int64_t dim : dims) sorted.push_back(c10::maybe_wrap_dim(dim, rank));
    std::sort(sorted.begin(), sorted.end());
    std::vector<int64_t> all(in.shape().size());
    std::iota(all.begin(), all.end(), 0);
    if (sorted != all) {
      throw LayerError("dims is " + at::str(at::IntArrayRef(dims)) + ", but " + shape_text(in.shape()) + " has " +
                       std::to_string(rank) + " dimensions: each is named once");
    }
    return layer_of_function([dims = dims](const at::Tensor& input) { return input.permute(dims); }, kView);
  }
  void onnx(OnnxForm& form) const {
    std::vector<int64_t> order;
    for (const int64_t dim : dims) order.push_back(form.axis(dim));
    form.give(form.transpose(form.input(), order));
  }
};

struct Transpose {
  int64_t dim0 = 0;
  int64_t dim1 = 0;
  static void describe(Fields<Transpose>& f) {
    f.required("dim0", &Transpose::dim0).doc("one dimension; 0 is the batch");
    f.required("dim1", &Transpose::dim1).doc("the dimension that it is swapped with");
  }
  Layer build(const LayerInputs&) const {
    return layer_of_function([*this](const at::Tensor& input) { return input.transpose(dim0, dim1); }, kView);
  }
  void onnx(OnnxForm& form) const {
    std::vector<int64_t> order(static_cast<size_t>(form.rank()));
    std::iota(order.begin(), order.end(), int64_t{0});
    std::swap(order[static_cast<size_t>(form.axis(dim0))], order[static_cast<size_t>(form.axis(dim1))]);
    form.give(form.transpose(form.input(), order));
  }
};

struct Squeeze {
  std::optional<std::variant<int64_t, std::vector<int64_t>>> dim;
  static void describe(Fields<Squeeze>& f) {
    f.optional("dim", &Squeeze::dim)
        .doc(
            "the dimension that is removed, or a list of them; those of another size than 1 are kept; null: all but "
            "the batch");
  }
  Layer build(const LayerInputs& in) const {
    return layer_of_function([dims = dims_of(static_cast<int64_t>(in.shape().size()))](
                                 const at::Tensor& input) { return input.squeeze(dims); },
                             kView);
  }
  void onnx(OnnxForm& form) const {
    std::vector<int64_t> dims;
    for (const int64_t dim : dims_of(form.rank())) {
      if (form.fixed_size(dim) == 1) dims.push_back(dim);
    }
    form.give(dims.empty() ? form.input() : form.op("Squeeze", {form.input(), form.ints(dims)}));
  }

 private:
  std::vector<int64_t> dims_of(int64_t rank) const {
    std::vector<int64_t> dims;
    if (!dim) {  // PyTorch's null takes the batch too, where that is of one sample
      for (int64_t i = 1; i < rank; ++i) dims.push_back(i);
    } else if (const auto* one = std::get_if<int64_t>(&*dim)) {
      dims = {*one};
    } else {
      dims = std::get<1>(*dim);
    }
    return dims;
  }
};

struct Unsqueeze {
  int64_t dim = 0;
  static void describe(Fields<Unsqueeze>& f) {
    f.required("dim", &Unsqueeze::dim).doc("index of the new dimension of size 1; 0 is the batch");
  }
  Layer build(const LayerInputs&) const {
    return layer_of_function([dim = dim](const at::Tensor& input) { return input.unsqueeze(dim); }, kView);
  }
  void onnx(OnnxForm& form) const { form.give(form.op("Unsqueeze", {form.input(), form.ints({dim})})); }
};

/// Pieces of this size along a dimension; the last may be smaller.
void give_pieces(OnnxForm& form, int64_t dim, int64_t size) {
  std::vector<int64_t> sizes;
  for (int64_t left = form.fixed_size(dim); left > 0; left -= size) sizes.push_back(std::min(size, left));
  for (const OnnxValue& piece : form.ops("Split", {form.input(), form.ints(sizes)}, sizes.size(), {{"axis", dim}})) {
    form.give(piece);
  }
}

struct Split {
  std::variant<int64_t, std::vector<int64_t>> split_size_or_sections;
  int64_t dim = 1;
  static void describe(Fields<Split>& f) {
    f.required("split_size_or_sections", &Split::split_size_or_sections)
        .at_least(0)
        .doc("size of each piece, the last may be smaller; or a list with the size of every one");
    f.optional("dim", &Split::dim).doc("the dimension that is cut; 0 is the batch");
  }
  void check(Checker& checker) const {
    const auto* size = std::get_if<int64_t>(&split_size_or_sections);
    if (size && *size == 0) checker.fail("split_size_or_sections", "must be >= 1, is 0");
  }
  Layer build(const LayerInputs& in) const {
    return {nullptr,
            [*this](const Tensors& inputs) -> Tensors {
              if (const auto* size = std::get_if<int64_t>(&split_size_or_sections)) return inputs[0].split(*size, dim);
              return inputs[0].split_with_sizes(std::get<1>(split_size_or_sections), dim);
            },
            view_of(in.is_features(dim))};
  }
  void onnx(OnnxForm& form) const {
    if (const auto* size = std::get_if<int64_t>(&split_size_or_sections)) return give_pieces(form, dim, *size);
    const auto& sizes = std::get<1>(split_size_or_sections);
    for (const OnnxValue& piece : form.ops("Split", {form.input(), form.ints(sizes)}, sizes.size(), {{"axis", dim}})) {
      form.give(piece);
    }
  }
};

struct Chunk {
  int64_t chunks = 0;
  int64_t dim = 1;
  static void describe(Fields<Chunk>& f) {
    f.required("chunks", &Chunk::chunks).at_least(1).doc("number of pieces, of equal size if possible");
    f.optional("dim", &Chunk::dim).doc("the dimension that is cut; 0 is the batch");
  }
  Layer build(const LayerInputs& in) const {
    return {nullptr,
            [*this](const Tensors& inputs) -> Tensors {
              Tensors pieces = inputs[0].chunk(chunks, dim);
              if (static_cast<int64_t>(pieces.size()) != chunks) {  // as torch.chunk does, which says nothing
                throw LayerError("a dimension of size " + std::to_string(inputs[0].size(dim)) + " makes " +
                                 std::to_string(pieces.size()) + " chunks, not " + std::to_string(chunks));
              }
              return pieces;
            },
            view_of(in.is_features(dim))};
  }
  void onnx(OnnxForm& form) const { give_pieces(form, dim, (form.fixed_size(dim) + chunks - 1) / chunks); }
};

}  // namespace

void add_reshapes(LayerRegistry& layers) {
  layers.add<Identity>("Identity", "its input");
  layers.add<Flatten>("Flatten", "merges dimensions into one");
  layers.add<Unflatten>("Unflatten", "splits a dimension into several");
  layers.add<Reshape>("Reshape", "the same elements in another shape");
  layers.add<Select>("Select", "one entry of a dimension: the last time step is {dim: 1, index: -1}");
  layers.add<Permute>("Permute", "its dimensions in another order");
  layers.add<Transpose>("Transpose", "two dimensions change places");
  layers.add<Squeeze>("Squeeze", "drops dimensions of size 1");
  layers.add<Unsqueeze>("Unsqueeze", "adds a dimension of size 1");
  layers.add<Split>("Split", "pieces of given sizes along a dimension, each an output");
  layers.add<Chunk>("Chunk", "a given number of pieces along a dimension, each an output");
}

}  // namespace trainrun
