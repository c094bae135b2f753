#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "registry/layer.h"

namespace trainrun {
namespace {

/// A layer around `holder`, whose weight may be that of another layer (`share:`).
template <class Holder>
Layer layer_with_weight(const Holder& holder) {
  /// A module's own list of its parameters, which only modules themselves may change.
  struct Access : torch::nn::Module {
    static at::Tensor& parameter(torch::nn::Module& module, const std::string& name) {
      return (module.*(&Access::parameters_))[name];
    }
  };
  Layer layer = layer_of(holder);
  layer.tie = [module = holder.ptr()](const std::string& name, const at::Tensor& tensor) {
    TORCH_CHECK(name == "weight", "only the weight can be tied");
    module->weight = tensor;
    Access::parameter(*module, name) = tensor;
  };
  return layer;
}

struct Linear {
  int64_t out_features = 0;
  bool bias = true;
  std::optional<int64_t> in_features;
  static void describe(Fields<Linear>& f) {
    f.required("out_features", &Linear::out_features).at_least(1).doc("size of the last dimension that comes out");
    f.optional("bias", &Linear::bias).doc("adds a learned vector");
    f.optional("in_features", &Linear::in_features)
        .at_least(1)
        .doc("size of the last dimension that flows in; inferred");
  }
  Layer build(const LayerInputs& in) const {
    const int64_t features = in.infer("in_features", in_features, -1);
    return layer_with_weight(torch::nn::Linear(torch::nn::LinearOptions(features, out_features).bias(bias)));
  }
};

struct Embedding {
  int64_t num_embeddings = 0;
  int64_t embedding_dim = 0;
  std::optional<int64_t> padding_idx;
  std::optional<double> max_norm;
  double norm_type = 2;
  bool scale_grad_by_freq = false;
  static void describe(Fields<Embedding>& f) {
    f.required("num_embeddings", &Embedding::num_embeddings).at_least(1).doc("size of the vocabulary");
    f.required("embedding_dim", &Embedding::embedding_dim).at_least(1).doc("size of each vector");
    f.optional("padding_idx", &Embedding::padding_idx).doc("the index whose vector stays zero");
    f.optional("max_norm", &Embedding::max_norm)
        .greater_than(0)
        .doc("vectors with a larger norm are scaled down to it");
    f.optional("norm_type", &Embedding::norm_type).greater_than(0).doc("the p of that p-norm");
    f.optional("scale_grad_by_freq", &Embedding::scale_grad_by_freq)
        .doc("divide gradients by how often the index is in the batch");
  }
  void check(Checker& checker) const {
    if (padding_idx && (*padding_idx >= num_embeddings || *padding_idx < -num_embeddings)) {
      checker.fail("padding_idx", "must be within num_embeddings, " + std::to_string(num_embeddings));
    }
  }
  Layer build(const LayerInputs& in) const {
    const at::ScalarType dtype = in.examples.at(0).scalar_type();
    if (dtype != at::kLong && dtype != at::kInt) {
      throw LayerError("it looks up integer indices, " + std::string(at::toString(dtype)) + " flows in");
    }
    torch::nn::EmbeddingOptions options(num_embeddings, embedding_dim);
    options.padding_idx(padding_idx).max_norm(max_norm).norm_type(norm_type).scale_grad_by_freq(scale_grad_by_freq);
    return layer_with_weight(torch::nn::Embedding(options));
  }
};

}  // namespace

void add_linears(LayerRegistry& layers) {
  layers.add<Linear>("Linear", "affine map of the last dimension, [N, …, in] to [N, …, out]");
  layers.add<Embedding>("Embedding", "a learned vector for each index, [N, …] int64 to [N, …, embedding_dim]");
}

}  // namespace trainrun
