#include "registry/kinds/scheduler.h"

namespace trainrun {

void SchedulerCommon::describe(Fields<SchedulerCommon>& f) {
  f.optional("interval", &SchedulerCommon::interval).doc("the unit of its numbers (step_size, T_max, warmup_steps, …)");
}

}  // namespace trainrun
