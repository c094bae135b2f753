#include "registry/layer.h"

namespace trainrun {
namespace {

struct Identity {
  static void describe(Fields<Identity>&) {}
  Layer build(const LayerInputs&) const {
    return layer_of_function([](const at::Tensor& input) { return input; });
  }
};

struct Flatten {
  int64_t start_dim = 1;
  int64_t end_dim = -1;
  static void describe(Fields<Flatten>& f) {
    f.optional("start_dim", &Flatten::start_dim).doc("the first dimension that is merged; 0 is the batch");
    f.optional("end_dim", &Flatten::end_dim).doc("the last one; -1 is the last there is");
  }
  Layer build(const LayerInputs&) const {
    return layer_of_function([*this](const at::Tensor& input) { return input.flatten(start_dim, end_dim); });
  }
};

struct Unflatten {
  int64_t dim = 1;
  std::vector<int64_t> unflattened_size;
  static void describe(Fields<Unflatten>& f) {
    f.required("dim", &Unflatten::dim).doc("the dimension that is split; 0 is the batch");
    f.required("unflattened_size", &Unflatten::unflattened_size)
        .at_least(-1)
        .doc("what it is split into; one size may be -1 and is inferred");
  }
  Layer build(const LayerInputs&) const {
    return layer_of_function([*this](const at::Tensor& input) { return input.unflatten(dim, unflattened_size); });
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
    return layer_of_function([shape = shape](const at::Tensor& input) {
      std::vector<int64_t> sizes = {input.size(0)};
      sizes.insert(sizes.end(), shape.begin(), shape.end());
      return input.reshape(sizes);
    });
  }
};

struct Select {
  int64_t dim = 0;
  int64_t index = 0;
  static void describe(Fields<Select>& f) {
    f.required("dim", &Select::dim).doc("the dimension that goes; 0 is the batch");
    f.required("index", &Select::index).doc("which of its entries stays; -1 is the last");
  }
  Layer build(const LayerInputs&) const {
    return layer_of_function([*this](const at::Tensor& input) { return input.select(dim, index); });
  }
};

}  // namespace

void add_reshapes(LayerRegistry& layers) {
  layers.add<Identity>("Identity", "its input");
  layers.add<Flatten>("Flatten", "merges dimensions into one");
  layers.add<Unflatten>("Unflatten", "splits a dimension into several");
  layers.add<Reshape>("Reshape", "the same elements in another shape");
  layers.add<Select>("Select", "one entry of a dimension: the last time step is {dim: 1, index: -1}");
}

}  // namespace trainrun
