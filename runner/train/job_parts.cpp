#include "runner/train/job_parts.h"

namespace trainrun {

Parts parts_of_job(Job& job) {
  Parts parts;
  add_data_parts(job, parts);
  add_model_parts(job, parts);
  add_progress_part(job, parts);
  add_step_parts(job, parts);
  add_callback_parts(job, parts);
  return parts;
}

}  // namespace trainrun
