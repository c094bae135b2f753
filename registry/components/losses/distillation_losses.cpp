#include <ATen/TensorOperators.h>
#include <ATen/ops/kl_div.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/where.h>

#include "registry/components/losses/loss_of.h"

// Losses that compare a model with another one, which is not trained.

namespace trainrun {
namespace {

/// Source: Hinton et al. 2015, "Distilling the Knowledge in a Neural Network".
struct DistillationLoss {
  double temperature = 1;
  int64_t class_dim = 1;
  int64_t ignore_index = -100;
  static void describe(Fields<DistillationLoss>& f) {
    f.optional("temperature", &DistillationLoss::temperature)
        .greater_than(0)
        .doc("both models' logits are divided by it, and the loss is multiplied by its square");
    f.optional("class_dim", &DistillationLoss::class_dim)
        .doc("the dimension that holds the classes; -1 for logits [N, T, C]");
    f.optional("ignore_index", &DistillationLoss::ignore_index)
        .doc(
            "with labels as a third input: positions with this label do not count, and the loss of a step or of an "
            "evaluation is the mean over the positions of all its batches that count");
  }

  LossFacts facts(const LayerInputs& in) const {
    LossFacts facts;
    if (in.examples.size() == 3) facts.counted = CountedTargets{ignore_index, std::nullopt, 2};
    return facts;
  }
  Loss build(const LayerInputs& in) const {
    const bool has_labels = in.examples.size() == 3;
    require_roles(in, has_labels ? std::vector<std::string>{"output", "teacher's output", "labels"}
                                 : std::vector<std::string>{"output", "teacher's output"});
    LayerInputs outputs;
    outputs.examples = {in.examples[0], in.examples[1]};
    require_alike(outputs, {"output", "teacher's output"});
    const int64_t classes = class_dim_of(in.shape(0), class_dim);
    if (has_labels) check_labels(in, classes);
    return {nullptr, [own = *this](const Tensors& inputs) { return own.of(inputs); }};
  }

 private:
  static void check_labels(const LayerInputs& in, int64_t classes) {
    std::vector<int64_t> expected = in.shape(0).vec();
    expected.erase(expected.begin() + classes);
    if (in.shape(2) != at::IntArrayRef(expected) || at::isFloatingType(in.examples[2].scalar_type())) {
      throw LayerError("its labels must be integers " + shape_text(expected) + ", not " + shape_text(in.shape(2)));
    }
  }

  at::Tensor of(const Tensors& inputs) const {
    const at::Tensor student = at::log_softmax(inputs[0] / temperature, class_dim);
    const at::Tensor teacher = at::log_softmax(inputs[1] / temperature, class_dim);
    at::Tensor divergence =
        at::kl_div(student, teacher, at::Reduction::None, /*log_target=*/true).sum(class_dim);  // of each position
    const double scale = temperature * temperature;
    if (inputs.size() < 3) return divergence.mean() * scale;
    const at::Tensor counts = inputs[2] != ignore_index;
    return at::where(counts, divergence, 0).sum() / counts.sum() * scale;
  }
};

}  // namespace

void add_distillation_losses(LossRegistry& losses) {
  losses.add<DistillationLoss>(
      "DistillationLoss",
      "how far the model's class probabilities are from a teacher's (`models`), at a temperature; inputs: [output, "
      "teacher], and perhaps labels that say which positions count (without them those of padding do, too)");
}

}  // namespace trainrun
