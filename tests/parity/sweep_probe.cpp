#include "tests/parity/sweep_probe.h"

#include <nlohmann/json.hpp>

#include "runner/sweep/halving.h"
#include "runner/sweep/sampler.h"

namespace trainrun {
namespace {

using nlohmann::json;

std::vector<Observation> observations_of(const json& points, const json& losses) {
  std::vector<Observation> observations;
  for (size_t i = 0; i < points.size(); ++i) {
    Observation one;
    one.number = static_cast<int64_t>(i);
    one.point = points[i].get<Point>();
    if (!losses[i].is_null()) one.loss = losses[i].get<double>();
    observations.push_back(std::move(one));
  }
  return observations;
}

SearchSpace space_of(const json& request) {
  return parse_search_space(request.at("space").get<std::vector<std::string>>());
}

}  // namespace

json next_points(const json& request) {
  const SearchSpace space = space_of(request);
  json points = json::array();
  for (const json& search : request.at("searches")) {
    const json& before = search.at("points");
    TrialRandom random(search.at("seed"), static_cast<int64_t>(before.size()));
    points.push_back(tpe_point(space, observations_of(before, search.at("losses")), random));
  }
  return {{"points", points}};
}

json excesses_of(const json& request) {
  const SearchSpace space = space_of(request);
  const auto observations = observations_of(request.at("observed"), request.at("losses"));
  json excesses = json::array();
  for (const json& point : request.at("points"))
    excesses.push_back(tpe_excess(space, observations, point.get<Point>()));
  return {{"excesses", excesses}};
}

json halving_decisions(const json& request) {
  Halving halving({request.at("min_steps"), request.at("reduction"), false});
  json goes_on = json::array(), promoted = json::array();
  for (const json& arrival : request.at("arrivals")) {
    const int64_t trial = arrival.at(0), rung = arrival.at(1);
    halving.note(trial, rung, arrival.at(2));
    goes_on.push_back(halving.goes_on(trial, rung));
    json own = json::array();
    while (const auto promotion = halving.next()) {
      own.push_back({promotion->trial, promotion->rung});
      halving.note_promoted(promotion->trial, promotion->rung);
    }
    promoted.push_back(own);
  }
  return {{"goes_on", goes_on}, {"promoted", promoted}};
}

}  // namespace trainrun
