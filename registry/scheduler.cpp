#include "registry/scheduler.h"

namespace trainrun {

void SchedulerCommon::describe(Fields<SchedulerCommon>& f) {
  f.optional("interval", &SchedulerCommon::interval)
      .doc("what its own counts (step_size, T_max, warmup_steps, …) count");
}

}  // namespace trainrun
