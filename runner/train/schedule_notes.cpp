#include "runner/train/schedule_notes.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "registry/language/error.h"
#include "runner/base/arithmetic.h"

namespace trainrun {
namespace {

std::string counted(int64_t number, const char* unit) {
  return std::to_string(number) + " " + unit + (number == 1 ? "" : "s");
}

/// How many epochs begin, if it is known.
std::optional<int64_t> epochs_of(const Recipe& recipe, const JobLength& job) {
  if (job.total_steps && job.steps_per_epoch) return ceil_divide(*job.total_steps, *job.steps_per_epoch);
  if (recipe.training.max_steps) return std::nullopt;
  return job.num_epochs;
}

/// The parameters of a component as JSON: numbers, lists of numbers, texts.
nlohmann::json json_of_written(const Value& written) {
  if (written.is_map()) {
    nlohmann::json object = nlohmann::json::object();
    for (const Value::Entry& entry : written.entries()) object[entry.key] = json_of_written(entry.value);
    return object;
  }
  if (written.is_list()) {
    nlohmann::json list = nlohmann::json::array();
    for (const Value& item : written.items()) list.push_back(json_of_written(item));
    return list;
  }
  if (!written.is_scalar()) return nullptr;
  if (const auto whole = parse_integer(written.text())) return *whole;
  if (const auto number = parse_number(written.text())) return *number;
  return written.text();
}

/// A scheduler, or one within another, and for how long it is asked.
struct Stretch {
  std::string type;
  Place place;
  std::string path;
  nlohmann::json parameters;  // those written, and of the outermost one the others' defaults, too
  const Value* written = nullptr;
  int64_t length = 0;     // in its unit
  bool is_whole = false;  // until the job ends, from its beginning

  int64_t whole(const char* name) const {
    const auto found = parameters.find(name);
    return found != parameters.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
  }
  double number(const char* name, double otherwise) const {
    const auto found = parameters.find(name);
    return found != parameters.end() && found->is_number() ? found->get<double>() : otherwise;
  }
};

class ScheduleNotes {
 public:
  ScheduleNotes(const Recipe& recipe, const JobLength& job, std::vector<Problem>& notes)
      : scheduler_(*recipe.scheduler),
        by_epochs_(scheduler_.common.interval == Interval::kEpoch),
        unit_(by_epochs_ ? "epoch" : "step"),
        job_(job),
        notes_(notes) {
    length_ = by_epochs_ ? epochs_of(recipe, job) : job.total_steps;
    const nlohmann::json& own = recipe.optimizer.attributes;
    base_rate_ = own.contains("lr") && own["lr"].is_number() ? own["lr"].get<double>() : 1;
  }

  void note() {
    if (!length_) return;
    if (by_epochs_ && job_.total_steps && job_.steps_per_epoch && *job_.total_steps < *job_.steps_per_epoch) {
      return add(outermost(), scheduler_.type + " counts epochs, but the job ends after " +
                                  counted(*job_.total_steps, "step") + " of the first epoch's " +
                                  std::to_string(*job_.steps_per_epoch) +
                                  ", so that the rate never changes; write interval: step");
    }
    const size_t before = notes_.size();
    note_stretch(outermost());
    if (notes_.size() == before) note_rates();
  }

 private:
  Stretch outermost() const {
    return {
        scheduler_.type, scheduler_.place, scheduler_.path, scheduler_.attributes, &scheduler_.written, *length_, true};
  }
  void add(const Stretch& stretch, const std::string& text) { notes_.push_back({stretch.place, stretch.path, text}); }

  /// "the job has 20 steps"
  std::string length_text(const Stretch& stretch) const {
    return (stretch.is_whole ? "the job has " : "its stretch has ") + counted(stretch.length, unit_.c_str());
  }

  /// For numbers that fit the other unit better.
  std::string unit_hint(int64_t greatest) const {
    if (by_epochs_) {
      const bool fits = job_.total_steps && greatest > *length_ && greatest <= *job_.total_steps;
      return fits ? "; if steps are meant, write interval: step" : "";
    }
    const bool fits =
        job_.num_epochs && greatest > 0 && greatest <= *job_.num_epochs && job_.steps_per_epoch.value_or(1) > 1;
    return fits ? "; if epochs are meant, write interval: epoch" : "";
  }

  void note_stretch(const Stretch& stretch) {
    if (stretch.type == "SequentialLR") return note_sequence(stretch);
    if (stretch.type == "ChainedScheduler") {
      for (size_t i = 0; i < parts_of(stretch).size(); ++i) note_stretch(part_of(stretch, i, stretch.length));
      return;
    }
    if (stretch.type == "MultiStepLR") return note_milestones(stretch);
    if (note_rise(stretch)) return;
    note_end(stretch);
  }

  static const std::vector<Value>& parts_of(const Stretch& stretch) {
    static const std::vector<Value> none;
    const Value* parts = stretch.written->find("schedulers");
    return parts ? parts->items() : none;
  }
  Stretch part_of(const Stretch& stretch, size_t i, int64_t length) const {
    const Value& part = parts_of(stretch)[i];
    const Value* type = part.find("type");
    return {type ? type->text() : part.text(),
            part.place(),
            stretch.path + ".schedulers[" + std::to_string(i) + "]",
            json_of_written(part),
            &part,
            length,
            stretch.is_whole && length == *length_};
  }

  void note_sequence(const Stretch& stretch) {
    const nlohmann::json& milestones = stretch.parameters["milestones"];
    int64_t begin = 0;
    for (size_t i = 0; i < parts_of(stretch).size(); ++i) {
      const int64_t end = i < milestones.size() ? milestones[i].get<int64_t>() : stretch.length;
      note_stretch(part_of(stretch, i, std::min(end, stretch.length) - begin));
      begin = end;
      if (i >= milestones.size() || end < stretch.length) continue;
      std::vector<std::string> idle;
      for (size_t later = i + 1; later < parts_of(stretch).size(); ++later) {
        idle.push_back(part_of(stretch, later, 0).type);
      }
      add(stretch, "milestones[" + std::to_string(i) + "] of SequentialLR is " + std::to_string(end) + ", but " +
                       length_text(stretch) + ", so that " + join(idle, " and ") +
                       (idle.size() == 1 ? " never begins" : " never begin") + unit_hint(end));
      return;
    }
  }

  void note_milestones(const Stretch& stretch) {
    std::vector<std::string> beyond;
    int64_t greatest = 0;
    for (const nlohmann::json& milestone : stretch.parameters["milestones"]) {
      const auto at = milestone.get<int64_t>();
      greatest = std::max(greatest, at);
      if (at >= stretch.length) beyond.push_back(std::to_string(at));
    }
    if (beyond.empty()) return;
    add(stretch, "MultiStepLR has " + std::string(beyond.size() == 1 ? "a milestone at " : "milestones at ") +
                     join(beyond, " and ") + ", but " + length_text(stretch) +
                     ", so that the rate does not change there" + unit_hint(greatest));
  }

  /// How many steps, or epochs, the rate rises, whatever the length of the job; 0: it does not.
  static int64_t rise_of(const Stretch& stretch) {
    if (stretch.type == "LinearLR") {
      const bool rises = stretch.number("start_factor", 1.0 / 3) < stretch.number("end_factor", 1);
      return rises ? stretch.whole("total_iters") : 0;
    }
    const int64_t total = stretch.whole("total_steps") > 0 ? stretch.whole("total_steps") : stretch.length;
    const auto share = [total](double ratio) {
      return static_cast<int64_t>(std::ceil(ratio * static_cast<double>(total)));
    };
    if (stretch.type == "OneCycleLR") return share(stretch.number("pct_start", 0.3)) - 1;
    const double ratio = stretch.number("warmup_ratio", 0);
    return ratio > 0 ? share(ratio) : stretch.whole("warmup_steps");
  }

  /// A part of a sequence may rise until the next one takes over at the full rate.
  bool note_rise(const Stretch& stretch) {
    const int64_t rise = rise_of(stretch);
    if (rise <= 0 || rise < stretch.length || (rise == stretch.length && !stretch.is_whole)) return false;
    add(stretch, "the rate of " + stretch.type + " rises for " + counted(rise, unit_.c_str()) + ", but " +
                     (stretch.is_whole ? "the job has " : "its stretch has ") + std::to_string(stretch.length) +
                     ", so that it never reaches " + (stretch.type == "OneCycleLR" ? "max_lr" : "optimizer.lr") +
                     unit_hint(rise));
    return true;
  }

  /// When a curve that was given its length is over, what gives it, and what comes then.
  struct End {
    int64_t at = 0;  // 0: it is not, or never
    std::string given_by;
    std::string then;
  };
  static End end_of(const Stretch& stretch) {
    const std::string& type = stretch.type;
    const std::string lowest = "the rate stays at its lowest";
    const std::string zero = "the rate is 0 and nothing is learnt";
    const std::string again = "the rate rises again";
    if (type == "CosineAnnealingLR") return {stretch.whole("T_max"), "T_max", again};
    if (type == "PolynomialLR") return {stretch.whole("total_iters"), "total_iters", zero};
    if (type == "LinearLR" && stretch.number("end_factor", 1) == 0) {
      return {stretch.whole("total_iters"), "total_iters", zero};
    }
    const int64_t total = stretch.whole("total_steps");
    if (type == "OneCycleLR" || type == "PolynomialWithWarmup") return {total, "total_steps", lowest};
    if (type == "LinearWithWarmup" || type == "CosineWithHardRestarts") return {total, "total_steps", zero};
    if (type == "CosineWithWarmup") return {total, "total_steps", again};
    if (type == "WarmupStableDecay") {
      const std::string then = stretch.number("min_lr_ratio", 0) == 0 ? zero : lowest;
      const int64_t stable = stretch.whole("num_stable_steps");
      if (stable == 0) return {total, "total_steps", then};
      return {stretch.whole("warmup_steps") + stable + stretch.whole("num_decay_steps"),
              "the sum of warmup_steps, num_stable_steps and num_decay_steps", then};
    }
    return {};
  }

  void note_end(const Stretch& stretch) {
    const End end = end_of(stretch);
    const bool raises_in_torch = stretch.type == "OneCycleLR";  // at the first step too many
    const int64_t left = stretch.length - end.at;
    if (end.at == 0 || left < (raises_in_torch ? 1 : 2)) return;
    const std::string cure =
        end.given_by == "T_max" || end.given_by == "total_steps"
            ? "; without " + end.given_by + " it lasts as long as " + (stretch.is_whole ? "the job" : "its stretch")
            : "";
    const std::string hint = unit_hint(end.at);
    add(stretch, end.given_by + " of " + stretch.type + " is " + std::to_string(end.at) + ", but " +
                     length_text(stretch) + ", so that " + end.then + " in the last " +
                     (left == 1 ? "one" : std::to_string(left)) +
                     (raises_in_torch ? ", where PyTorch would end with an error" : "") + (hint.empty() ? cure : hint));
  }

  // --- By the rates themselves

  /// Whether its rates are known to be a function of time and of one group's rate.
  static bool is_known(const Stretch& stretch, const ScheduleNotes& notes) {
    static const std::set<std::string> names = {
        "StepLR",       "MultiStepLR",       "ExponentialLR",     "MultiplicativeLR", "Piecewise", "LinearLR",
        "SequentialLR", "ChainedScheduler",  "PolynomialLR",      "ConstantLR",       "SWALR",     "OneCycleLR",
        "CyclicLR",     "CosineAnnealingLR", "WarmupStableDecay", "InverseSqrt"};
    if (!names.contains(stretch.type)) return false;
    for (size_t i = 0; i < parts_of(stretch).size(); ++i) {
      if (!is_known(notes.part_of(stretch, i, 1), notes)) return false;
    }
    return true;
  }

  void note_rates() {
    constexpr int64_t kMostLooked = 2'000'000;
    constexpr double kNegligible = 1e-5;  // of the highest rate
    constexpr int64_t kShare = 10;        // of the job, that may pass with such rates
    const int64_t length = *length_;
    const Stretch whole = outermost();
    if (length < 2 || length > kMostLooked || base_rate_ <= 0 || !is_known(whole, *this)) return;
    std::vector<GroupRates> rates(1);
    rates[0].lr = base_rate_;
    const auto scheduler = scheduler_.build({rates, length});
    std::vector<double> seen;
    for (int64_t t = 0; t < length; ++t) {
      scheduler->set(t, rates);
      seen.push_back(rates[0].lr);
    }
    const auto [lowest, highest] = std::ranges::minmax(seen);
    if (lowest == highest) {
      const bool is_meant = whole.type == "ConstantLR" && whole.whole("total_iters") == 0;
      if (!is_meant)
        add(whole, "the rate of " + whole.type + " never changes in the job's " + counted(length, unit_.c_str()));
      return;
    }
    const double least = kNegligible * highest;
    const auto last = std::find_if(seen.rbegin(), seen.rend(), [least](double rate) { return rate > least; });
    const auto left = static_cast<int64_t>(last - seen.rbegin());
    if (left < std::max<int64_t>(2, length / kShare)) return;
    const bool is_zero = std::all_of(seen.rbegin(), last, [](double rate) { return rate == 0; });
    add(whole,
        "the rate of " + whole.type + " is " + (is_zero ? "0" : "less than a hundred-thousandth of its highest") +
            " in the last " + std::to_string(left) + " of the job's " + counted(length, unit_.c_str()) + ", so that " +
            (is_zero ? "nothing" : "hardly anything") + " is learnt there" + unit_hint(whole.whole("step_size")));
  }

  const Component<SchedulerKind>& scheduler_;
  bool by_epochs_;
  std::string unit_;
  const JobLength& job_;
  std::vector<Problem>& notes_;
  std::optional<int64_t> length_;
  double base_rate_ = 1;
};

void note_averages(const Recipe& recipe, const JobLength& job, std::vector<Problem>& notes) {
  if (!job.total_steps) return;
  for (const Component<CallbackKind>& callback : recipe.callbacks) {
    const auto start = callback.attributes.find("start_step");
    if (start == callback.attributes.end() || !start->is_number_integer()) continue;
    if (start->get<int64_t>() <= *job.total_steps) continue;
    notes.push_back({callback.place, callback.path,
                     callback.type + " begins at step " + std::to_string(start->get<int64_t>()) + ", but the job has " +
                         counted(*job.total_steps, "step") + ", so that it never does anything"});
  }
}

void note_unfreezing(const Recipe& recipe, const JobLength& job, std::vector<Problem>& notes) {
  const auto start = recipe.model.unfreeze_at_epoch;
  if (!start) return;
  const int64_t epochs = epochs_of(recipe, job).value_or(0);
  if (epochs == 0 || *start < epochs) return;
  const Place place = recipe.model.freeze.empty() ? Place() : recipe.model.freeze.front().place;
  notes.push_back({place, "model.unfreeze_at_epoch",
                   "is " + std::to_string(*start) + ", but the job has " + counted(epochs, "epoch") +
                       ", counted from 0, so that the parameters that model.freeze names are never trained"});
}

}  // namespace

std::vector<Problem> schedule_notes(const Recipe& recipe, const JobLength& job) {
  std::vector<Problem> notes;
  if (recipe.scheduler) ScheduleNotes(recipe, job, notes).note();
  note_averages(recipe, job, notes);
  note_unfreezing(recipe, job, notes);
  return notes;
}

}  // namespace trainrun
