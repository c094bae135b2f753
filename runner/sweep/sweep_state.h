#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "registry/kinds/monitor.h"
#include "runner/sweep/halving.h"
#include "runner/sweep/journal.h"

namespace trainrun {

/// One trial of a sweep. What a trial is, its digest says; which of the sweep's values it has follows from that.
struct SweepTrial {
  enum class State {
    kWaiting,   // there is something to train
    kPaused,    // it came to a rung, and others are better
    kFinished,  // the whole length was trained
    kFailed,
  };
  struct Reached {
    int64_t rung = 0;
    int64_t step = 0;
    double figure = 0;
  };
  struct Origin {
    int64_t trial = 0;
    int64_t step = 0;
  };

  int64_t id = 0;  // of its folder, trial-0007
  std::string digest;
  std::vector<std::pair<std::string, std::string>> values;  // of the keys that differ
  State state = State::kWaiting;
  std::optional<int64_t> goal;   // the step to stop after; nothing: the whole length
  int64_t step = 0;              // that was reached
  std::vector<Reached> reached;  // its rungs
  std::optional<double> figure;  // of the whole length
  double seconds = 0;
  std::string why;               // it failed, or ended early
  std::optional<Origin> origin;  // it began with this one's steps

  /// The figure of the whole length, else that of the last rung.
  std::optional<double> newest_figure() const {
    return figure || reached.empty() ? figure : std::optional(reached.back().figure);
  }
};
/// "waiting", "paused", "finished", "failed"
std::string state_word(SweepTrial::State state);

/// What a sweep is about. Of one whose facts are others, only the trials are of use.
struct SweepFacts {
  std::string recipe;                  // its path
  std::vector<std::string> arguments;  // of the command line: `key=value`
  std::vector<std::string> keys;       // that trials differ in
  std::string metric;
  MonitorMode better = MonitorMode::kMin;
  std::string method;  // "grid", "random", "tpe"
  int64_t num_trials = 0;
  uint64_t seed = 0;
  std::optional<Halving::Options> halving;

  nlohmann::json to_json() const;
  static SweepFacts from_json(const nlohmann::json& facts);
  /// The smaller the better.
  double loss_of(double figure) const { return better == MonitorMode::kMax ? -figure : figure; }
};

/// Where a sweep stands. It is what the entries of its journal make of it, one after the other.
class SweepState {
 public:
  explicit SweepState(const std::vector<nlohmann::json>& entries);
  /// Takes what happened.
  void apply(const nlohmann::json& entry);

  const std::optional<SweepFacts>& facts() const { return facts_; }
  const std::deque<SweepTrial>& trials() const { return trials_; }
  const SweepTrial& trial(int64_t id) const { return trials_.at(index_.at(id)); }
  /// The trial that has this digest.
  const SweepTrial* find(const std::string& digest) const;
  /// The next number of a trial that is made.
  int64_t next_id() const { return next_id_; }
  /// Which trial each point of the search is; several may be the same one.
  const std::map<int64_t, int64_t>& trial_of_number() const { return trial_of_number_; }
  const std::optional<Halving>& halving() const { return halving_; }

 private:
  void begin(const nlohmann::json& facts);
  SweepTrial& at(const nlohmann::json& entry);
  void take_reached(const nlohmann::json& entry);

  std::optional<SweepFacts> facts_;
  std::deque<SweepTrial> trials_;    // whose addresses stay as more come
  std::map<int64_t, size_t> index_;  // of a trial's number in trials_
  std::map<int64_t, int64_t> trial_of_number_;
  std::optional<Halving> halving_;
  int64_t next_id_ = 0;
};

/// The names of what happens, as the journal has them, each with what it needs.
namespace sweep_events {
nlohmann::json start(const SweepFacts& facts);
nlohmann::json trial(const SweepTrial& trial);
nlohmann::json number(int64_t number, int64_t trial);
/// Where others begin with what it has saved.
nlohmann::json stopped(int64_t trial, int64_t step);
nlohmann::json forked(int64_t trial, int64_t parent, int64_t step);
/// `goal`: the next rung's step.
nlohmann::json promoted(int64_t trial, int64_t rung, int64_t goal);
/// `goal`: where it goes on at once.
nlohmann::json reached(int64_t trial, const SweepTrial::Reached& at, double seconds, std::optional<int64_t> goal);
nlohmann::json finished(int64_t trial, int64_t step, std::optional<double> figure, double seconds,
                        const std::string& why);
nlohmann::json failed(int64_t trial, int64_t step, const std::string& why);
nlohmann::json retried(int64_t trial);
}  // namespace sweep_events

}  // namespace trainrun
