#include <c10/core/GradMode.h>

#include <cmath>

#include "registry/graph/graph.h"
#include "registry/graph/shape_mode.h"
#include "registry/models/listing.h"

// torchvision's Vision Transformers. Source: Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words: Transformers for
// Image Recognition at Scale".

namespace trainrun {
namespace {

using nlohmann::json;

struct ViTShape {
  int64_t heads;
  int64_t features;
};
constexpr int64_t kPatch = 16;
constexpr int64_t kDepth = 12;
constexpr double kNormEps = 1e-6;

template <const ViTShape& kShape>
struct VisionTransformer {
  std::optional<int64_t> num_classes = 1000;
  double dropout = 0;
  double attention_dropout = 0;
  static void describe(Fields<VisionTransformer>& f) {
    using V = VisionTransformer;
    f.optional("num_classes", &V::num_classes)
        .at_least(1)
        .doc("outputs of the last layer; null: leave that layer out and return the class token's features");
    f.optional("dropout", &V::dropout).at_least(0).at_most(1).doc("dropout of embeddings and blocks, while training");
    f.optional("attention_dropout", &V::attention_dropout)
        .at_least(0)
        .at_most(1)
        .doc("dropout of the attention weights, while training");
  }

  Layer build(const LayerInputs& in) const {
    in.require_dims(4, 4, "[N, C, H, W]");
    const int64_t height = in.shape()[2];
    const int64_t width = in.shape()[3];
    if (height % kPatch != 0 || width % kPatch != 0) {
      throw LayerError("it reads patches of 16x16, into which " + shape_text(in.shape()) +
                       " cannot be cut; resize the images");
    }
    Listing model;
    // What has weights of its own comes in torchvision's order of drawing.
    model.add("Conv2d",
              {{"name", "conv_proj"}, {"out_channels", kShape.features}, {"kernel_size", kPatch}, {"stride", kPatch}});
    model.add("Parameter",
              {{"name", "class_token"}, {"inputs", "x"}, {"shape", {1, 1, kShape.features}}, {"expand", true}});
    model.add("Flatten", {{"name", "patches"}, {"inputs", "conv_proj"}, {"start_dim", 2}});
    model.add("Permute", {{"name", "tokens"}, {"dims", {0, 2, 1}}});
    model.add("Concat", {{"name", "sequence"}, {"inputs", {"class_token", "tokens"}}, {"dim", 1}});
    model.add(encoder(height / kPatch * (width / kPatch) + 1), "encoder");
    model.add("Select", {{"name", "class"}, {"dim", 1}, {"index", 0}});
    if (num_classes) {
      Listing heads;
      heads.add("Linear", {{"name", "head"}, {"out_features", *num_classes}});
      model.add(std::move(heads), "heads");
    }
    auto graph = model.build(in);
    if (!ShapeMode::active()) draw_ends(*graph);
    return whole_model(std::move(graph));
  }

 private:
  Listing encoder(int64_t length) const {
    Listing encoder;
    encoder.add("Parameter", {{"name", "pos_embedding"},
                              {"shape", {1, length, kShape.features}},
                              {"expand", false},
                              {"init", {{"type", "Normal"}, {"std", 0.02}}}});
    encoder.add("Add", {{"name", "embedded"}, {"inputs", {"x", "pos_embedding"}}});
    encoder.add("Dropout", {{"name", "dropout"}, {"p", dropout}});
    Listing layers;
    for (int64_t i = 0; i < kDepth; ++i) layers.add(block(), "encoder_layer_" + std::to_string(i));
    encoder.add(std::move(layers), "layers");
    encoder.add("LayerNorm", {{"name", "ln"}, {"eps", kNormEps}});
    return encoder;
  }

  Listing block() const {
    Listing mlp;
    mlp.add("Linear", {{"out_features", 4 * kShape.features}}).add("GELU").add("Dropout", {{"p", dropout}});
    mlp.add("Linear", {{"out_features", kShape.features}}).add("Dropout", {{"p", dropout}});
    const json drawn_once_more = {{{"match", "weight$"}, {"type", "XavierUniform"}},
                                  {{"match", "bias$"}, {"type", "Normal"}, {"std", 1e-6}}};
    Listing block;
    block.add("LayerNorm", {{"name", "ln_1"}, {"eps", kNormEps}});
    block.add("MultiheadAttention", {{"name", "self_attention"},
                                     {"num_heads", kShape.heads},
                                     {"dropout", attention_dropout},
                                     {"batch_first", true}});
    block.add("Dropout", {{"name", "dropout"}, {"p", dropout}});
    block.add("Add", {{"name", "attended"}, {"inputs", {"dropout", "x"}}});
    block.add("LayerNorm", {{"name", "ln_2"}, {"eps", kNormEps}});
    block.add(std::move(mlp), "mlp", {}, drawn_once_more);
    block.add("Add", {{"name", "sum"}, {"inputs", {"attended", "mlp"}}});
    return block;
  }

  /// The projection of the patches anew, and the head as zeros.
  static void draw_ends(const Graph& graph) {
    const c10::AutoGradMode no_gradients(false);
    const auto parameters = graph.named_parameters();
    const at::Tensor& patches = parameters["conv_proj.weight"];
    const double fan_in = static_cast<double>(patches[0].numel());
    draw({{"type", "TruncNormal"}, {"std", std::sqrt(1 / fan_in)}})(patches);
    for (const auto& item : parameters) {
      if (item.key() == "conv_proj.bias" || item.key().starts_with("heads.")) item.value().zero_();
    }
  }
};

constexpr ViTShape kSmallViT = {6, 384};
constexpr ViTShape kBaseViT = {12, 768};

}  // namespace

void add_vision_transformers(LayerRegistry& layers) {
  layers.add<VisionTransformer<kSmallViT>>(
      "ViT_S_16", "small Vision Transformer over patches of 16x16, [N, C, H, W] to [N, num_classes]");
  layers.add<VisionTransformer<kBaseViT>>(
      "ViT_B_16", "base Vision Transformer over patches of 16x16, [N, C, H, W] to [N, num_classes]");
}

}  // namespace trainrun
