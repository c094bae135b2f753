#include "runner/sweep/sweep_state.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace trainrun {
namespace {

using nlohmann::json;

/// A number that JSON may lack.
json number_json(double number) {
  if (std::isfinite(number)) return number;
  return std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf";
}

double number_of(const json& written) {
  if (written.is_number()) return written.get<double>();
  const std::string word = written.get<std::string>();
  if (word == "nan") return NAN;
  return word == "inf" ? INFINITY : -INFINITY;
}

}  // namespace

std::string state_word(SweepTrial::State state) {
  constexpr std::array kStates = {"waiting", "paused", "finished", "failed"};
  return kStates[static_cast<size_t>(state)];
}

json SweepFacts::to_json() const {
  json facts = {{"recipe", recipe},
                {"arguments", arguments},
                {"keys", keys},
                {"metric", metric},
                {"better", better == MonitorMode::kMax ? "max" : "min"},
                {"method", method},
                {"num_trials", num_trials},
                {"seed", seed},
                {"halving", nullptr}};
  if (halving) {
    facts["halving"] = {{"min_steps", halving->min_steps},
                        {"reduction", halving->reduction},
                        {"decides_at_once", halving->decides_at_once}};
  }
  return facts;
}

SweepFacts SweepFacts::from_json(const json& facts) {
  SweepFacts own;
  own.recipe = facts.at("recipe");
  own.arguments = facts.at("arguments").get<std::vector<std::string>>();
  own.keys = facts.at("keys").get<std::vector<std::string>>();
  own.metric = facts.at("metric");
  own.better = facts.at("better") == "max" ? MonitorMode::kMax : MonitorMode::kMin;
  own.method = facts.at("method");
  own.num_trials = facts.at("num_trials");
  own.seed = facts.at("seed");
  const json& halving = facts.at("halving");
  if (!halving.is_null()) {
    own.halving = Halving::Options{halving.at("min_steps").get<int64_t>(), halving.at("reduction").get<int64_t>(),
                                   halving.at("decides_at_once").get<bool>()};
  }
  return own;
}

SweepState::SweepState(const std::vector<json>& entries) {
  for (const json& entry : entries) apply(entry);
}

const SweepTrial* SweepState::find(const std::string& digest) const {
  for (const SweepTrial& trial : trials_) {
    if (trial.digest == digest) return &trial;
  }
  return nullptr;
}

SweepTrial& SweepState::at(const json& entry) { return trials_.at(index_.at(entry.at("trial").get<int64_t>())); }

void SweepState::begin(const json& facts) {
  if (facts_ && facts_->to_json() == facts) return;  // it goes on
  facts_ = SweepFacts::from_json(facts);
  trial_of_number_.clear();
  halving_.reset();
  if (facts_->halving) halving_.emplace(*facts_->halving);
  for (SweepTrial& trial : trials_) {  // what they came to, their folders say
    SweepTrial anew;
    anew.id = trial.id;
    anew.digest = trial.digest;
    anew.values = trial.values;
    anew.origin = trial.origin;
    trial = std::move(anew);
    if (halving_) trial.goal = halving_->steps_of(0);
  }
}

void SweepState::take_reached(const json& entry) {
  SweepTrial& trial = at(entry);
  trial.step = entry.at("step");
  trial.seconds = entry.at("seconds");
  const SweepTrial::Reached reached = {entry.at("rung").get<int64_t>(), trial.step, number_of(entry.at("figure"))};
  trial.reached.push_back(reached);
  if (halving_) halving_->note(trial.id, reached.rung, facts_->loss_of(reached.figure));
  trial.state = SweepTrial::State::kPaused;
  if (!entry.contains("goal")) return;
  trial.state = SweepTrial::State::kWaiting;
  trial.goal = entry.at("goal").get<int64_t>();
}

void SweepState::apply(const json& entry) {
  using State = SweepTrial::State;
  const std::string event = entry.at("event");
  if (event == "start") {
    begin(entry.at("facts"));
  } else if (event == "trial") {
    SweepTrial trial;
    trial.id = entry.at("trial");
    trial.digest = entry.at("digest");
    for (const json& value : entry.at("values"))
      trial.values.emplace_back(value.at(0).get<std::string>(), value.at(1).get<std::string>());
    if (halving_) trial.goal = halving_->steps_of(0);
    next_id_ = std::max(next_id_, trial.id + 1);
    index_[trial.id] = trials_.size();
    trials_.push_back(std::move(trial));
  } else if (event == "number") {
    trial_of_number_[entry.at("number").get<int64_t>()] = entry.at("trial").get<int64_t>();
  } else if (event == "forked") {
    at(entry).origin = SweepTrial::Origin{entry.at("from").get<int64_t>(), entry.at("step").get<int64_t>()};
    at(entry).step = entry.at("step");
  } else if (event == "stopped") {
    at(entry).step = entry.at("step");
  } else if (event == "promoted") {
    at(entry).goal = entry.at("goal").get<int64_t>();
    at(entry).state = State::kWaiting;
    if (halving_) halving_->note_promoted(at(entry).id, entry.at("rung").get<int64_t>());
  } else if (event == "reached") {
    take_reached(entry);
  } else if (event == "finished") {
    SweepTrial& trial = at(entry);
    trial.state = State::kFinished;
    trial.step = entry.at("step");
    trial.seconds = entry.at("seconds");
    trial.why = entry.at("why");
    if (!entry.at("figure").is_null()) trial.figure = number_of(entry.at("figure"));
  } else if (event == "failed") {
    at(entry).state = State::kFailed;
    at(entry).step = entry.at("step");
    at(entry).why = entry.at("why");
  } else if (event == "retried") {
    at(entry).state = State::kWaiting;
    at(entry).why.clear();
  }
}

namespace sweep_events {

json start(const SweepFacts& facts) {
  return {{"event", "start"}, {"version", TRAINRUN_VERSION}, {"facts", facts.to_json()}};
}

json trial(const SweepTrial& trial) {
  json values = json::array();
  for (const auto& [key, value] : trial.values) values.push_back({key, value});
  return {{"event", "trial"}, {"trial", trial.id}, {"digest", trial.digest}, {"values", values}};
}

json number(int64_t number, int64_t trial) { return {{"event", "number"}, {"number", number}, {"trial", trial}}; }

json forked(int64_t trial, int64_t parent, int64_t step) {
  return {{"event", "forked"}, {"trial", trial}, {"from", parent}, {"step", step}};
}

json stopped(int64_t trial, int64_t step) { return {{"event", "stopped"}, {"trial", trial}, {"step", step}}; }

json promoted(int64_t trial, int64_t rung, int64_t goal) {
  return {{"event", "promoted"}, {"trial", trial}, {"rung", rung}, {"goal", goal}};
}

json reached(int64_t trial, const SweepTrial::Reached& at, double seconds, std::optional<int64_t> goal) {
  json entry = {
      {"event", "reached"}, {"trial", trial}, {"rung", at.rung}, {"step", at.step}, {"figure", number_json(at.figure)},
      {"seconds", seconds}};
  if (goal) entry["goal"] = *goal;
  return entry;
}

json finished(int64_t trial, int64_t step, std::optional<double> figure, double seconds, const std::string& why) {
  return {{"event", "finished"}, {"trial", trial}, {"step", step}, {"figure", figure ? number_json(*figure) : json()},
          {"seconds", seconds},  {"why", why}};
}

json failed(int64_t trial, int64_t step, const std::string& why) {
  return {{"event", "failed"}, {"trial", trial}, {"step", step}, {"why", why}};
}

json retried(int64_t trial) { return {{"event", "retried"}, {"trial", trial}}; }

}  // namespace sweep_events

}  // namespace trainrun
