#pragma once

#include "runner/train/stateful.h"

namespace trainrun {

using Parts = std::vector<std::unique_ptr<Stateful>>;

void add_data_parts(Job& job, Parts& parts);
void add_model_parts(Job& job, Parts& parts);
void add_progress_part(Job& job, Parts& parts);
void add_step_parts(Job& job, Parts& parts);
void add_callback_parts(Job& job, Parts& parts);

}  // namespace trainrun
