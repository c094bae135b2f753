#include <ATen/ops/pad.h>

#include "registry/layers/onnx_parts.h"
#include "registry/layers/sizes.h"

namespace trainrun {
namespace {

constexpr char kConstant[] = "constant";
constexpr char kReflect[] = "reflect";
constexpr char kReplicate[] = "replicate";
constexpr char kCircular[] = "circular";

/// torch.nn.ZeroPad1d, …, CircularPad3d: `kMode` is torch.nn.functional.pad's.
template <int kDims, const char* kMode>
struct Pad {
  Sizes<2 * kDims> padding;
  static void describe(Fields<Pad>& f) { describe_padding(f); }
  template <class P>
  static void describe_padding(Fields<P>& f) {
    f.required("padding", &Pad::padding)
        .doc(std::string("points added at each border, or [left, right") + (kDims > 1 ? ", top, bottom" : "") +
             (kDims > 2 ? ", front, back" : "") + "]; a negative number cuts off");
  }
  Layer build(const LayerInputs& in) const { return build_with(in, std::nullopt); }
  void onnx(OnnxForm& form) const { give_form(form, 0); }
  Layer build_with(const LayerInputs& in, std::optional<double> value) const {
    require_image<kDims>(in);
    return layer_of_function(
        [sizes = padding, value](const at::Tensor& input) { return at::pad(input, sizes, kMode, value); });
  }

 protected:
  void give_form(OnnxForm& form, double value) const {
    std::vector<int64_t> pads(size_t{2} * kDims);  // before each dimension, then after each
    for (size_t i = 0; i < kDims; ++i) {
      pads[kDims - 1 - i] = padding[2 * i];
      pads[2 * kDims - 1 - i] = padding[2 * i + 1];
    }
    form.give(onnx_padded(form, form.input(), pads, kMode, value));
  }
};

/// torch.nn.ConstantPad1d, ConstantPad2d, ConstantPad3d.
template <int kDims>
struct ConstantPad : Pad<kDims, kConstant> {
  double value = 0;
  static void describe(Fields<ConstantPad>& f) {
    ConstantPad::describe_padding(f);
    f.required("value", &ConstantPad::value).doc("value of the added points");
  }
  Layer build(const LayerInputs& in) const { return this->build_with(in, value); }
  void onnx(OnnxForm& form) const { this->give_form(form, value); }
};

template <int kDims>
void add_paddings_of(LayerRegistry& layers) {
  const std::string dims = std::to_string(kDims) + "d";
  const std::string borders = std::string("adds points at the borders of ") + kImage<kDims>;
  layers.add<Pad<kDims, kConstant>>("ZeroPad" + dims, borders + ": zeros");
  layers.add<ConstantPad<kDims>>("ConstantPad" + dims, borders + ": a given number");
  layers.add<Pad<kDims, kReflect>>("ReflectionPad" + dims, borders + ": mirrored, the border itself not repeated");
  layers.add<Pad<kDims, kReplicate>>("ReplicationPad" + dims, borders + ": the border repeated");
  layers.add<Pad<kDims, kCircular>>("CircularPad" + dims, borders + ": what is at the opposite border");
}

}  // namespace

void add_paddings(LayerRegistry& layers) {
  add_paddings_of<1>(layers);
  add_paddings_of<2>(layers);
  add_paddings_of<3>(layers);
}

}  // namespace trainrun
