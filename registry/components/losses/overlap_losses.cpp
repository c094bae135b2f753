#include <ATen/TensorOperators.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>

#include "registry/components/losses/loss_of.h"

// Losses of how far a predicted region and the true one cover each other.

namespace trainrun {
namespace {

/// Source: Milletari et al. 2016, "V-Net", in the form that MONAI's DiceLoss has by default: for each sample and class
/// 1 - (2 |A ∩ B| + smooth) / (|A| + |B| + smooth).
struct DiceLoss : ClassInputs {
  double smooth = 1e-5;
  bool include_background = true;
  int64_t ignore_index = -100;
  static void describe(auto& f) {
    f.optional("smooth", &DiceLoss::smooth)
        .greater_than(0)
        .doc("added to numerator and denominator, so that a class that is in neither region has no loss");
    f.optional("include_background", &DiceLoss::include_background).doc("false: class 0 does not count");
    f.optional("ignore_index", &DiceLoss::ignore_index).doc("class indices with this value are ignored");
  }
  /// Whether it reads class indices [N, …] for [N, C, …], not 0 and 1 in the output's own shape.
  static bool reads_classes(const at::Tensor& output, const at::Tensor& target) {
    return output.sizes() != target.sizes();
  }
  void say(const LayerInputs& in, LossFacts& facts) const {
    if (in.examples.size() == 2 && reads_classes(in.examples[0], in.examples[1]))
      set_classes(in, 1, ignore_index, facts);
  }
  void require(const LayerInputs& in, const std::vector<std::string>& roles) const {
    if (in.shape(0).size() < 3) {
      throw LayerError("the output is " + shape_text(in.shape(0)) + ", expected [N, C, …], a score for each point");
    }
    if (in.shape(0) == in.shape(1)) return require_alike(in, roles);
    require_class_indices(in, {});
    if (!include_background && in.shape(0)[1] < 2) {
      throw LayerError("include_background is false, but class 0 is the only one");
    }
  }
  at::Tensor operator()(const Tensors& in, int64_t reduction) const {
    at::Tensor output, target;  // [N, C, points]
    if (reads_classes(in[0], in[1])) {
      const at::Tensor labels = in[1].flatten(1);
      const at::Tensor counted = labels.ne(ignore_index);
      const at::Tensor known = labels.masked_fill(counted.logical_not(), 0);
      const at::Tensor weight = counted.unsqueeze(1).to(in[0].scalar_type());
      output = at::softmax(in[0].flatten(2), 1) * weight;
      target = at::one_hot(known, in[0].size(1)).movedim(-1, 1).to(in[0].scalar_type()) * weight;
    } else {
      output = at::sigmoid(in[0].flatten(2));
      target = in[1].flatten(2).to(in[0].scalar_type());
    }
    if (!include_background) {
      output = output.slice(1, 1);
      target = target.slice(1, 1);
    }
    const at::Tensor common = (output * target).sum(2);
    const at::Tensor losses = 1 - (2 * common + smooth) / (output.sum(2) + target.sum(2) + smooth);  // [N, C]
    return reduction == at::Reduction::Mean ? losses.mean() : losses.sum();
  }
};

}  // namespace

void add_overlap_losses(LossRegistry& losses) {
  losses.add<LossOf<DiceLoss>>("DiceLoss", "overlap loss between predicted and true regions, for segmentation");
}

}  // namespace trainrun
