#include <ATen/ops/ctc_loss.h>
#include <ATen/ops/full_like.h>

#include "registry/components/losses/loss_of.h"

namespace trainrun {
namespace {

/// Source: Graves et al. 2006; semantics of torch.nn.CTCLoss.
struct CTCLoss : ClassInputs {
  static constexpr auto kTarget = LossFacts::Target::kOther;
  int64_t blank = 0;
  bool zero_infinity = false;
  bool batch_first = false;
  static std::vector<std::string> roles() { return {"log_probs", "targets", "input_lengths", "target_lengths"}; }
  /// Without input_lengths every output counts in all its length.
  static std::vector<std::string> roles_of(size_t num_inputs) {
    return num_inputs == 3 ? std::vector<std::string>{"log_probs", "targets", "target_lengths"} : roles();
  }
  static void describe(auto& f) {
    f.optional("blank", &CTCLoss::blank).at_least(0).doc("index of the blank class");
    f.optional("zero_infinity", &CTCLoss::zero_infinity)
        .doc("count 0 instead of infinity if the target is too long for the output");
    f.optional("batch_first", &CTCLoss::batch_first).doc("the log-probabilities are [N, T, C], not [T, N, C]");
  }
  void require(const LayerInputs& in, const std::vector<std::string>& roles) const {
    in.require_dims(3, 3, batch_first ? "[N, T, C]" : "[T, N, C]");
    const int64_t classes = in.shape(0)[2];
    if (blank >= classes) {
      throw LayerError("blank is " + std::to_string(blank) + ", the output has " + std::to_string(classes) +
                       " classes");
    }
    if (in.shape(1).size() != 2) throw LayerError("the targets are labels [N, S], not " + shape_text(in.shape(1)));
    for (size_t i = 1; i < roles.size(); ++i) {
      if (!at::isIntegralType(in.examples[i].scalar_type(), false)) {
        throw LayerError("the " + roles[i] + " are integers, not " + at::toString(in.examples[i].scalar_type()));
      }
      if (i > 1 && in.shape(i).size() != 1) {
        throw LayerError("the " + roles[i] + " are [N], not " + shape_text(in.shape(i)));
      }
    }
  }
  at::Tensor operator()(const Tensors& in, int64_t reduction) const {
    if (in[0].is_meta()) return in[0].sum();  // its lengths are data, which the shape mode has not
    const at::Tensor log_probs = batch_first ? in[0].transpose(0, 1) : in[0];
    const at::Tensor lengths = in.size() == 3 ? at::full_like(in[2], log_probs.size(0)) : in[2];
    return at::ctc_loss(log_probs, in[1], lengths, in.back(), blank, reduction, zero_infinity);
  }
};

}  // namespace

void add_sequence_losses(LossRegistry& losses) {
  losses.add<LossOf<CTCLoss>>("CTCLoss",
                              "loss of label sequences without alignment; inputs: [log_probs, targets, input_lengths, "
                              "target_lengths], [T, N, C], [N, S], [N] and [N]; or without input_lengths");
}

}  // namespace trainrun
