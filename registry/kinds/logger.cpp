#include "registry/kinds/logger.h"

namespace trainrun {

Figures StepRecord::figures() const {
  Figures all = {{"train/loss", loss}};
  all.insert(all.end(), losses.begin(), losses.end());
  all.emplace_back("train/lr", lr);
  for (size_t i = 0; i < group_lrs.size(); ++i) all.emplace_back("train/lr/" + std::to_string(i), group_lrs[i]);
  all.emplace_back("train/samples_per_second", samples_per_second);
  all.emplace_back("train/loss_avg", loss_avg);
  if (grad_norm) all.emplace_back("train/grad_norm", *grad_norm);
  if (loss_scale) {
    all.emplace_back("train/loss_scale", *loss_scale);
    all.emplace_back("train/skipped_steps", static_cast<double>(skipped_steps));
  }
  all.insert(all.end(), of_callbacks.begin(), of_callbacks.end());
  return all;
}

}  // namespace trainrun
