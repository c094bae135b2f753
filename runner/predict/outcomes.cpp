#include <array>

#include "registry/kinds/layer_shapes.h"
#include "registry/language/text_forms.h"
#include "runner/predict/outcome.h"

namespace trainrun {

std::unique_ptr<Outcome> make_outcome(const OutcomeInputs& inputs) {
  constexpr std::array kPage = {&make_mask_outcome,     &make_tag_outcome,    &make_vector_outcome,
                                &make_reward_outcome,   &make_label_outcome,  &make_class_outcome,
                                &make_quantile_outcome, &make_number_outcome, &make_raw_outcome};
  for (const auto& make : kPage) {
    if (auto outcome = make(inputs)) return outcome;
  }
  throw Error("predict: nothing is known to write of an output " + shape_text(inputs.output().sizes()) +
              " that is trained by " + inputs.loss_type);
}

std::vector<std::string> names_of_classes(const FieldContract& target, int64_t count) {
  std::vector<std::string> names = target.class_names;
  const auto known = static_cast<int64_t>(names.size());
  if (known > count) {
    throw Error("predict: the model gives " + std::to_string(count) + " classes, but the training data have " +
                std::to_string(known) + ": " + join_first(names, 20, LeftOut::kCount));
  }
  for (int64_t i = known; i < count; ++i) names.push_back("LABEL_" + std::to_string(i));
  return names;
}

std::vector<std::string> names_of_numbers(const FieldContract& target, int64_t count) {
  if (count == 1 && !target.called.empty()) return {target.called};
  const auto num_named = static_cast<int64_t>(target.names_within.size());
  std::vector<std::string> steps;
  if (num_named == count && target.called.empty()) return target.names_within;
  if (num_named == count) {  // "sales[1]": the steps of a window
    for (const std::string& step : target.names_within) steps.push_back(target.called + "[" + step + "]");
    return steps;
  }
  if (num_named > 0 && count % num_named == 0) {  // of several columns
    for (int64_t i = 0; i < count; ++i) {
      steps.push_back(target.names_within[static_cast<size_t>(i % num_named)] + "[" +
                      std::to_string(1 + i / num_named) + "]");
    }
    return steps;
  }
  const std::string title = target.called.empty() ? "prediction" : target.called;
  if (count == 1) return {title};
  std::vector<std::string> names;
  for (int64_t i = 0; i < count; ++i) names.push_back(title + "[" + std::to_string(i) + "]");
  return names;
}

}  // namespace trainrun
