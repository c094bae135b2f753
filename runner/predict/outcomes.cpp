#include <array>

#include "registry/kinds/layer_shapes.h"
#include "runner/predict/outcome.h"

namespace trainrun {

std::unique_ptr<Outcome> make_outcome(const OutcomeInputs& inputs) {
  constexpr std::array kPage = {&make_mask_outcome,     &make_label_outcome,  &make_class_outcome,
                                &make_quantile_outcome, &make_number_outcome, &make_raw_outcome};
  for (const auto& make : kPage) {
    if (auto outcome = make(inputs)) return outcome;
  }
  throw Error("predict: nothing is known to write of an output " + shape_text(inputs.output().sizes()) +
              " that is trained by " + inputs.loss_type);
}

std::vector<std::string> names_of_numbers(const FieldContract& target, int64_t count) {
  if (static_cast<int64_t>(target.names_within.size()) == count) return target.names_within;
  const std::string title = target.called.empty() ? "prediction" : target.called;
  if (count == 1) return {title};
  std::vector<std::string> names;
  for (int64_t i = 0; i < count; ++i) names.push_back(title + "[" + std::to_string(i) + "]");
  return names;
}

}  // namespace trainrun
