#pragma once

#include "registry/kinds/adapter.h"
#include "registry/kinds/callback.h"
#include "registry/kinds/comm_hook.h"
#include "registry/kinds/initializer.h"
#include "registry/kinds/loss.h"
#include "registry/kinds/metric.h"
#include "registry/kinds/optimizer.h"
#include "registry/kinds/scheduler.h"
#include "registry/kinds/transform.h"

namespace trainrun {

/// Adds the initializers of this room.
void add_initializer_families(InitializerRegistry& registry);
/// Adds the losses of this room.
void add_loss_families(LossRegistry& registry);
/// Adds the metrics of this room.
void add_metric_families(MetricRegistry& registry);
/// Adds the optimizers of this room.
void add_optimizer_families(OptimizerRegistry& registry);
/// Adds the schedulers of this room.
void add_scheduler_families(SchedulerRegistry& registry);
/// Adds the communication hooks of this room.
void add_comm_hook_families(CommHookRegistry& registry);
/// Adds the callbacks of this room.
void add_callback_families(CallbackRegistry& registry);
/// Adds the adapters of this room.
void add_adapter_families(AdapterRegistry& registry);
/// Adds the transforms of this room.
void add_transform_families(TransformRegistry& registry);

}  // namespace trainrun
