#include "runner/foresight/demand.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include "registry/language/error.h"
#include "runner/base/arithmetic.h"
#include "runner/base/text.h"
#include "runner/device/free_memory.h"

namespace trainrun {
namespace {

constexpr double kRoughFactor = 1;              // should memory run out after all, that is noticed
constexpr int64_t kRoughProgram = 150'000'000;  // of the program, which the formula of `explain` leaves out
constexpr int kMostTries = 4;                   // of batch sizes that are found by extrapolation
constexpr double kMemoryMargin = 0.97;          // of a limit, that advice keeps to: one rehearsal is not like another
constexpr double kTimeMargin = 0.9;             // of a limit, that advice keeps to: times vary
constexpr int64_t kLeastEpochs = 1;

/// What a process said last, in one line: notes come before its error.
std::string last_line(const std::string& said) {
  const size_t end = said.find_last_not_of("\r\n");
  if (end == std::string::npos) return "it said nothing";
  const size_t before = said.find_last_of("\r\n", end);
  const size_t begin = before == std::string::npos ? 0 : before + 1;
  return said.substr(begin, end + 1 - begin);
}

/// Batches of fewer samples than the recipe's that BatchNorm and the like refuse: larger ones may do.
class TooFewSamples : public Error {
 public:
  using Error::Error;
};

/// One rehearsal after the other; each is counted.
class Trials {
 public:
  Trials(const Recipe& recipe, const Rehearse& rehearse, Demand& demand)
      : recipe_(recipe), rehearse_(rehearse), demand_(demand) {}

  /// In batches of `size`; nothing where memory ran out. Throws Error with what the rehearsal said, and TooFewSamples
  /// where that is a refusal of so small batches.
  std::optional<Rehearsal> at(int64_t size, RehearsalAim aim) {
    const std::string refusal = "the job cannot be rehearsed in batches of " + std::to_string(size) + ": ";
    const auto known = std::ranges::find(demand_.skipped, size, &SkippedSize::batch_size);
    if (known != demand_.skipped.end()) throw TooFewSamples(refusal + known->why);
    const bool is_own = size == recipe_.dataloader.batch_size;
    RehearsalResult result = rehearse_(is_own ? std::vector<std::string>() : smaller_batches(recipe_, size), aim);
    if (!result.rehearsal && !result.was_killed) {
      if (is_own) throw Error(refusal + result.error);
      const std::string why = last_line(result.error);
      if (!result.is_too_small) throw Error(refusal + why);
      demand_.skipped.push_back({size, why});
      throw TooFewSamples(refusal + why);
    }
    if (demand_.sizes.empty() || demand_.sizes.back() != size) demand_.sizes.push_back(size);
    return result.rehearsal;
  }

 private:
  const Recipe& recipe_;
  const Rehearse& rehearse_;
  Demand& demand_;
};

int64_t processes_of_machine(const Recipe& recipe) {
  return std::max<int64_t>(recipe.num_processes / recipe.num_machines, 1);
}

/// What all processes of a machine take, of which each holds the same pages of files.
int64_t bytes_of_machine(const Recipe& recipe, const Rehearsal& rehearsal) {
  const int64_t own = rehearsal.peak_bytes - rehearsal.shared_bytes;
  return rehearsal.on_gpu ? rehearsal.peak_bytes : rehearsal.shared_bytes + own * processes_of_machine(recipe);
}

int64_t rough_bytes(const Recipe& recipe, const MemorySummary& memory, int64_t size) {
  const double samples = static_cast<double>(memory.activations + memory.batch) * static_cast<double>(size) /
                         static_cast<double>(recipe.dataloader.batch_size);
  const auto fixed =
      static_cast<double>(memory.weights + memory.gradients + memory.optimizer_state + memory.checkpoint_copy);
  return kRoughProgram + static_cast<int64_t>(kRoughFactor * (samples + fixed));
}

/// On the line through `a` at size x and `b` at size y, the value at `size`.
double on_line(double a, int64_t x, double b, int64_t y, int64_t size) {
  return b + (b - a) / static_cast<double>(y - x) * static_cast<double>(size - y);
}

/// What the recipe's batches would take, from smaller ones.
Rehearsal extrapolated(const Rehearsal& small, const Rehearsal& large, int64_t size) {
  Rehearsal result = large;
  const auto line = [&](auto member) {
    return std::max(0.0, on_line(static_cast<double>(small.*member), small.batch_size,
                                 static_cast<double>(large.*member), large.batch_size, size));
  };
  result.peak_bytes = static_cast<int64_t>(line(&Rehearsal::peak_bytes));
  result.batch_size = size;
  return result;
}

/// Where the recipe's own batches do not fit into this machine: two smaller sizes, and the line through them. A step of
/// smaller batches accumulates, and has as many samples: its time is taken as it is.
Rehearsal rehearse_smaller(const Recipe& recipe, const MemorySummary& memory, Trials& trials, int64_t free,
                           RehearsalAim aim) {
  const int64_t own = recipe.dataloader.batch_size;
  int64_t size = largest_divisor(own, std::max<int64_t>(own / 2, 1));
  while (size > 1 && rough_bytes(recipe, memory, size) > free) size = largest_divisor(own, size - 1);
  for (int tries = 0; tries < kMostTries && size > 1; ++tries) {
    const auto large = trials.at(size, aim);
    const int64_t smaller = largest_divisor(own, std::max<int64_t>(size / 2, 1));
    if (large) {
      if (const auto small = trials.at(smaller, aim)) return extrapolated(*small, *large, own);
    }
    size = smaller;
  }
  throw Error("this machine has too little memory to rehearse the job: " + bytes_text(static_cast<double>(free)) +
              " are free, and batches of " + std::to_string(size) + " take about " +
              bytes_text(static_cast<double>(rough_bytes(recipe, memory, size))));
}

/// The seconds that training waits for a checkpoint: while it is copied; where it is written beside, for the processors
/// that this takes, and for what is not written when the next one comes.
double seconds_of_save(const Rehearsal& r, double between) {
  const auto cores = static_cast<double>(std::max(std::thread::hardware_concurrency(), 1U));
  return r.copy_seconds + std::max(r.write_cpu_seconds / cores, r.write_seconds - between);
}

/// Of all folds: the program starts once.
double starting_seconds(const Rehearsal& r) {
  return r.start_seconds + static_cast<double>(r.folds - 1) * r.build_seconds;
}

void sum_up_time(const Recipe& recipe, Demand& demand) {
  const Rehearsal& r = demand.rehearsal;
  std::optional<int64_t> steps = r.total_steps;
  if (const auto& tokens = recipe.training.max_tokens; tokens && r.tokens_per_step > 0) {
    const int64_t by_tokens = ceil_divide(*tokens, r.tokens_per_step * recipe.num_processes);
    steps = std::min(steps.value_or(by_tokens), by_tokens);
  }
  const auto& limit = recipe.training.max_time;
  if (!steps) {
    if (limit) demand.seconds = limit->seconds;
    return;
  }
  const auto folds = static_cast<double>(r.folds);
  const double stepping = static_cast<double>(*steps) * r.step_seconds;
  const double evaluating = static_cast<double>(r.evaluations) * r.evaluation_seconds;
  double saves = static_cast<double>(r.saves);
  const auto& every = recipe.checkpoint.every;
  if (const auto* time = every ? std::get_if<Duration>(&*every) : nullptr) {
    saves = std::floor((stepping + evaluating) / time->seconds) + 1;
  }
  const double between = saves > 0 ? (stepping + evaluating) / saves : 0;
  demand.step_part = folds * stepping;
  demand.evaluation_part = folds * evaluating;
  demand.checkpoint_part = folds * (saves * seconds_of_save(r, between) + (saves > 0 ? r.write_seconds : 0));
  demand.seconds = starting_seconds(r) + demand.step_part + demand.evaluation_part + demand.checkpoint_part;
  if (limit) demand.seconds = std::min(*demand.seconds, starting_seconds(r) + folds * limit->seconds);
}

struct Part {
  std::string name;
  double amount;
};

std::string largest_of(const std::vector<Part>& parts) {
  return std::max_element(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.amount < b.amount; })
      ->name;
}

std::vector<Part> memory_parts_of(const Demand& demand, const MemorySummary& memory) {
  const Rehearsal& r = demand.rehearsal;
  const auto bytes = [](int64_t number) { return static_cast<double>(std::max<int64_t>(number, 0)); };
  const int64_t fixed = memory.gradients + memory.optimizer_state + memory.checkpoint_copy;
  return {{"the program", bytes(r.program_bytes)},
          {"the data", bytes(r.built_bytes - r.program_bytes - memory.weights)},
          {"the weights", bytes(memory.weights)},
          {"gradients", bytes(memory.gradients)},
          {"the optimizer's state", bytes(memory.optimizer_state)},
          {"the copy of the state for a checkpoint", bytes(memory.checkpoint_copy)},
          {"what a batch takes: layers' outputs, kept for the backward pass, and work space",
           bytes(r.peak_bytes - r.built_bytes - fixed)}};
}

/// The smallest divisor of `batch_size` that is larger than `size`.
int64_t next_divisor(int64_t batch_size, int64_t size) {
  do ++size;
  while (size < batch_size && batch_size % size != 0);
  return size;
}

/// Rehearses batches of `size`, or of the next larger ones below `limit` that can be trained: BatchNorm refuses batches of
/// one sample. `size` becomes theirs. False: there are none. Throws Error for all that is wrong with them otherwise.
bool rehearse_from(Trials& trials, int64_t own, int64_t limit, int64_t& size, std::optional<Rehearsal>& found) {
  for (; size < limit; size = next_divisor(own, size)) {
    try {
      found = trials.at(size, RehearsalAim::kMemory);
      return true;
    } catch (const TooFewSamples&) {  // demand.skipped has it
      continue;
    }
  }
  return false;
}

/// Finds the largest batches with which the job fits, and proves it by rehearsing them.
void advise_on_memory(const LoadedRecipe& loaded, const DemandLimits& limits, Trials& trials, const Demand& demand,
                      LimitVerdict& verdict) {
  const Recipe& recipe = loaded.recipe;
  const int64_t own = recipe.dataloader.batch_size;
  if (own == 1) {
    verdict.remark = "its batches have one sample already; see model.checkpoint_activations and mixed_precision";
    return;
  }
  const double limit = kMemoryMargin * static_cast<double>(*limits.bytes);
  auto known_size = own;
  auto known_bytes = static_cast<double>(demand.peak_bytes);
  int64_t size = largest_divisor(own, own / 2);
  double least = known_bytes;
  for (int tries = 0; tries < kMostTries; ++tries) {
    std::optional<Rehearsal> found;
    const auto bytes_of = [&] { return found ? static_cast<double>(bytes_of_machine(recipe, *found)) : known_bytes; };
    try {
      if (!rehearse_from(trials, own, known_size, size, found)) break;
      if (bytes_of() <= limit && limits.wants_time) found = trials.at(size, RehearsalAim::kMemoryAndTime);  // the proof
    } catch (const Error& error) {  // what the recipe's own batches take is known, and whether they fit
      verdict.remark = std::string("smaller batches were not tried further: ") + error.what();
      return;
    }
    const double bytes = bytes_of();
    least = std::min(least, bytes);
    if (found && bytes <= limit) {
      verdict.advice = smaller_batches(recipe, size);
      verdict.batch_size = size;
      verdict.remark =
          "rehearsed: " + bytes_text(bytes) +
          "; each step sees the same samples, but BatchNorm, Dropout and losses that compare samples see " +
          std::to_string(size) + " at a time";
      if (recipe.training.lr_scaling && recipe.dataloader.drop_last) {
        verdict.remark += "; lr_scaling multiplies the rates by the accumulated batches, so divide optimizer.lr again";
      }
      return;
    }
    if (size == 1) {
      known_size = 1;
      break;
    }
    const double slope = (known_bytes - bytes) / static_cast<double>(known_size - size);
    const double room = limit - bytes;
    const int64_t guess = slope > 0 ? size + static_cast<int64_t>(std::floor(room / slope)) : 1;
    known_size = size;
    known_bytes = bytes;
    size = tries == kMostTries - 2 ? 1 : largest_divisor(own, std::clamp<int64_t>(guess, 1, size - 1));
  }
  verdict.remark = "smaller batches alone do not help: with batches of " + std::to_string(known_size) +
                   " it still takes " + bytes_text(least);
}

/// Fewer epochs, or steps, that keep a tenth away from the limit.
void advise_on_time(const Recipe& recipe, const DemandLimits& limits, const Demand& demand, LimitVerdict& verdict) {
  const Rehearsal& r = demand.rehearsal;
  if (!r.total_steps) return;
  const double all = *demand.seconds - starting_seconds(r);
  const double room = kTimeMargin * *limits.seconds - starting_seconds(r);
  const auto steps = static_cast<int64_t>(static_cast<double>(*r.total_steps) * room / all);
  const int64_t epochs = steps / std::max<int64_t>(r.steps_per_epoch, 1);
  if (epochs >= kLeastEpochs && recipe.training.num_epochs && !recipe.training.max_steps) {
    verdict.advice = {"training.num_epochs=" + std::to_string(epochs)};
  } else if (steps >= 1) {
    verdict.advice = {"training.max_steps=" + std::to_string(steps)};
  }
  verdict.remark = verdict.advice.empty() ? "not even one step fits into that time"
                                          : "a tenth of the time is left over, since times vary; the learning rate's "
                                            "schedule ends sooner, too";
}

}  // namespace

int64_t largest_divisor(int64_t batch_size, int64_t most) {
  for (int64_t size = std::min(batch_size, most); size > 1; --size) {
    if (batch_size % size == 0) return size;
  }
  return 1;
}

std::vector<std::string> smaller_batches(const Recipe& recipe, int64_t size) {
  const std::string number = std::to_string(size);
  if (!recipe.dataloader.drop_last) return {"dataloader.micro_batch_size=" + number};
  const int64_t pieces = recipe.dataloader.batch_size / size;
  const int64_t batches = saturating_product(recipe.training.gradient_accumulation_steps, pieces);
  return {"dataloader.batch_size=" + number, "training.gradient_accumulation_steps=" + std::to_string(batches)};
}

Demand foresee(const LoadedRecipe& loaded, const Explanation& explanation, const DemandLimits& limits,
               const Rehearse& rehearse) {
  const Recipe& recipe = loaded.recipe;
  Demand demand;
  demand.processes = processes_of_machine(recipe);
  Trials trials(recipe, rehearse, demand);
  const RehearsalAim aim = limits.wants_time ? RehearsalAim::kMemoryAndTime : RehearsalAim::kMemory;
  const int64_t free = free_memory();
  std::optional<Rehearsal> own;
  if (recipe.dataloader.batch_size == 1 ||
      rough_bytes(recipe, explanation.memory, recipe.dataloader.batch_size) <= free) {
    own = trials.at(recipe.dataloader.batch_size, aim);
  }
  demand.is_extrapolated = !own;
  demand.rehearsal = own ? *own : rehearse_smaller(recipe, explanation.memory, trials, free, aim);
  demand.peak_bytes = bytes_of_machine(recipe, demand.rehearsal);
  if (limits.wants_time) sum_up_time(recipe, demand);
  if (limits.bytes) {
    LimitVerdict& verdict = demand.fits.emplace();
    verdict.holds = demand.peak_bytes <= *limits.bytes;
    verdict.most = largest_of(memory_parts_of(demand, explanation.memory));
    if (!verdict.holds) advise_on_memory(loaded, limits, trials, demand, verdict);
  }
  if (limits.seconds) {
    if (!demand.seconds) throw Error("nobody knows how long the job takes: neither its steps nor its time have an end");
    LimitVerdict& verdict = demand.within.emplace();
    verdict.holds = *demand.seconds <= *limits.seconds;
    verdict.most = largest_of({{"the start", starting_seconds(demand.rehearsal)},
                               {"optimizer steps", demand.step_part},
                               {"evaluations", demand.evaluation_part},
                               {"waiting for checkpoints", demand.checkpoint_part}});
    if (!verdict.holds) advise_on_time(recipe, limits, demand, verdict);
  }
  return demand;
}

}  // namespace trainrun
