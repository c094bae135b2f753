#pragma once

#include <optional>
#include <string>

#include "registry/catalog.h"
#include "registry/kinds/monitor.h"
#include "registry/language/value.h"

namespace trainrun {

/// By which figure of its evaluations a run is judged.
struct WatchedFigure {
  std::string name;                   // "eval/accuracy"
  std::optional<MonitorMode> better;  // which way; nothing: not known
};

/// What keep_best of a resolved recipe monitors, else a callback (EarlyStopping), else the scheduler; else the recipe's
/// first metric on its first set of evaluation data, else the loss there.
WatchedFigure watched_figure(const Value& recipe, const Catalog& catalog);

/// Whether when evaluations come changes the numbers of the recipe's run, since its scheduler watches them; nothing where
/// its scheduler is not in the catalog (a plugin's).
std::optional<bool> evaluation_decides(const Value& recipe, const Catalog& catalog);

}  // namespace trainrun
