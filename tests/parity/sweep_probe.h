#pragma once

#include <nlohmann/json_fwd.hpp>

namespace trainrun {

/// The next point of each of the `searches` over `space` (as the command line has it) by the estimator: of each its seed,
/// and the points with their losses so far (null: it runs).
nlohmann::json next_points(const nlohmann::json& request);

/// Of `points`, how much the good trials' density exceeds the others' (tpe_excess), after `observations`.
nlohmann::json excesses_of(const nlohmann::json& request);

/// Of `arrivals`, each [trial, rung, loss]: whether a trial goes on at once, and which are promoted after each arrival.
nlohmann::json halving_decisions(const nlohmann::json& request);

}  // namespace trainrun
