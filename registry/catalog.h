#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

#include "registry/graph/fusion.h"
#include "registry/kinds/adapter.h"
#include "registry/kinds/callback.h"
#include "registry/kinds/comm_hook.h"
#include "registry/kinds/dataset.h"
#include "registry/kinds/initializer.h"
#include "registry/kinds/layer.h"
#include "registry/kinds/logger.h"
#include "registry/kinds/loss.h"
#include "registry/kinds/metric.h"
#include "registry/kinds/optimizer.h"
#include "registry/kinds/scheduler.h"
#include "registry/kinds/transform.h"

namespace trainrun {

/// Everything that a recipe can name, and the fusions.
class Catalog {
 public:
  LayerRegistry layers;
  InitializerRegistry initializers;
  LossRegistry losses;
  MetricRegistry metrics;
  DatasetRegistry datasets;
  TransformRegistry transforms;
  OptimizerRegistry optimizers;
  SchedulerRegistry schedulers;
  CommHookRegistry comm_hooks;
  CallbackRegistry callbacks;
  LoggerRegistry loggers;
  AdapterRegistry adapters;
  FusionRegistry fusions;

  /// Calls `visit(registry)` for each registry. A new kind is added here, and works in `list`, `schema` and the
  /// reference.
  template <class Visit>
  void for_each(const Visit& visit) const {
    visit(layers), visit(initializers), visit(losses), visit(metrics), visit(datasets);
    visit(transforms), visit(optimizers), visit(schedulers), visit(comm_hooks), visit(callbacks);
    visit(loggers), visit(adapters);
  }
  template <class Visit>
  void for_each(const Visit& visit) {
    visit(layers), visit(initializers), visit(losses), visit(metrics), visit(datasets);
    visit(transforms), visit(optimizers), visit(schedulers), visit(comm_hooks), visit(callbacks);
    visit(loggers), visit(adapters);
  }
};

/// The components that come with the registry: one page for each room, families.cpp. They are described once in a process.
Catalog builtins();

/// The JSON Schema definitions of every component. "layer.Conv2d" is its mapping, with nothing required; "layer" is any
/// complete layer; "every_layer" has what all layers share; "known_layer" is a layer or a list of layers, without the
/// types of blocks; "initializer_rule" is an initializer with the pattern of the parameters that it is for;
/// "interpolation" is a `${…}`, and "interpolated_text" is a text that contains one.
nlohmann::json schema_definitions(const Catalog& catalog);

}  // namespace trainrun
