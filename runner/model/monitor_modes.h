#pragma once

#include <vector>

#include "registry/language/codec.h"
#include "runner/model/figures.h"

namespace trainrun {

/// Sets the `mode` of keep_best, of the scheduler and of callbacks where the recipe leaves it out: which way the watched
/// figure is better, as its metric says. `value` is the recipe as it was read, and gets the modes, too. A problem where
/// neither says it; what is returned are notes, of modes that contradict a metric and of figures under an older name.
std::vector<Problem> settle_modes(Recipe& recipe, const std::vector<EvaluationFigure>& figures, Value& value,
                                  Reader& reader);

}  // namespace trainrun
