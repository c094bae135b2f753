#include "registry/kinds/generation_options.h"

namespace trainrun {

GenerationOptions with_wishes(GenerationOptions options, const GenerationWishes& wishes) {
  if (wishes.max_new_tokens) options.max_new_tokens = *wishes.max_new_tokens;
  if (wishes.repetition_penalty) options.repetition_penalty = *wishes.repetition_penalty;
  if (wishes.top_k) options.top_k = *wishes.top_k;
  if (wishes.top_p) options.top_p = *wishes.top_p;
  if (wishes.temperature && *wishes.temperature > 0) options.temperature = *wishes.temperature;
  if (wishes.temperature || wishes.top_k || wishes.top_p) options.do_sample = true;
  if (wishes.temperature && *wishes.temperature == 0) options.do_sample = false;
  return options;
}

}  // namespace trainrun
