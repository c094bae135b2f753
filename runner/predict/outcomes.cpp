#include <array>

#include "registry/kinds/layer_shapes.h"
#include "runner/predict/outcome.h"

namespace trainrun {

std::unique_ptr<Outcome> make_outcome(const OutcomeInputs& inputs) {
  constexpr std::array kPage = {&make_mask_outcome, &make_label_outcome, &make_class_outcome, &make_number_outcome,
                                &make_raw_outcome};
  for (const auto& make : kPage) {
    if (auto outcome = make(inputs)) return outcome;
  }
  throw Error("predict: nothing is known to write of an output " + shape_text(inputs.output().sizes()) +
              " that is trained by " + inputs.loss_type);
}

}  // namespace trainrun
