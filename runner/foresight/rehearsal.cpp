// Some of a job, run to see what it takes.
#include "runner/foresight/rehearsal.h"

#include <ATen/ops/argmax.h>
#include <ATen/ops/cat.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "registry/data/sample_lengths.h"
#include "registry/kinds/dataset_facts.h"
#include "registry/language/error.h"
#include "runner/base/arithmetic.h"
#include "runner/data/data.h"
#include "runner/device/device.h"
#include "runner/device/free_memory.h"
#include "runner/recipe/recipe_defaults.h"
#include "runner/run/run_folder.h"
#include "runner/train/train_loop.h"
#include "runner/train/train_step.h"

namespace trainrun {
namespace {

constexpr int64_t kUntimedSteps = 3;       // the first ones allocate, and start threads
constexpr int64_t kLeastTimedSteps = 5;    // that are timed, unless they last long
constexpr int64_t kMostTimedSteps = 2000;  // timed
constexpr double kLeastSeconds = 2;        // of timed steps, …
constexpr double kMostSeconds = 15;        // … after which a few do
constexpr int64_t kLeastLongSteps = 2;     // that last long
constexpr double kEvaluationSeconds = 3;   // after which an evaluation is broken off
constexpr int64_t kMemoryBatches = 8;      // that take the place of those steps where only memory is asked for, and …
constexpr double kShortEvaluation = 0.5;   // … after which an evaluation is broken off then
constexpr int64_t kUntimedBatches = 2;     // of an evaluation

double clock_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Of all threads of this process.
double cpu_seconds_so_far() {
  constexpr double kMicro = 1e-6;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         kMicro * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

/// Seconds since the system started this process.
double age_of_process() {
  constexpr int kFieldsBefore = 20;  // of /proc/self/stat, from what follows the name on to the start
  std::ifstream file("/proc/self/stat");
  std::string text;
  std::getline(file, text);
  std::istringstream fields(text.substr(std::min(text.rfind(')') + 1, text.size())));
  std::string skipped;
  for (int i = 0; i < kFieldsBefore - 1; ++i) fields >> skipped;
  double started = 0;
  timespec since_boot{};
  constexpr double kNano = 1e-9;
  if (!(fields >> started) || clock_gettime(CLOCK_BOOTTIME, &since_boot) != 0) return 0;
  return static_cast<double>(since_boot.tv_sec) + kNano * static_cast<double>(since_boot.tv_nsec) -
         started / static_cast<double>(sysconf(_SC_CLK_TCK));
}

/// Each sample of the data in its usual order, but the longest one first: the first batch is then as long as any.
Drawing longest_first(const at::Tensor& lengths, const Drawing& usual, const Sampler& sampler) {
  Drawing drawing = usual;
  const int64_t longest = lengths.argmax().item<int64_t>();
  drawing.order = [sampler, longest](uint64_t, int64_t epoch) {
    const at::Tensor order = sampler.all_indices(epoch).to(at::kLong);
    const at::Tensor others = order.masked_select(order.ne(longest));
    return at::cat({at::full({1}, longest, at::kLong), others});
  };
  return drawing;
}

class Rehearser {
 public:
  Rehearser(Job& job, RehearsalAim aim, Rehearsal& result)
      : job_(job), wants_time_(aim == RehearsalAim::kMemoryAndTime), result_(result) {}

  void run() {
    begin_with_longest();
    begin_in_last_epoch();
    count();
    job_.model->train();
    steps(untimed_steps(), 0);
    time_steps();
    evaluate_all();
    save();  // after it, as in a run: with what an evaluation left behind
    steps(untimed_steps(), 0);
  }

 private:
  const Recipe& recipe() const { return job_.recipe; }

  /// Memory settles with batches, of which a step may have hundreds.
  int64_t steps_of(int64_t batches) const {
    return ceil_divide(batches, recipe().training.gradient_accumulation_steps);
  }
  int64_t untimed_steps() const { return wants_time_ ? kUntimedSteps : steps_of(kUntimedSteps); }

  void begin_with_longest() {
    if (job_.train_data->facts().own_order || recipe().dataloader.chosen_sampler() || !recipe().dataloader.shuffle)
      return;
    if (recipe().dataloader.group_by_length) return;  // the longest come first there, too
    at::Tensor lengths;
    try {
      lengths = sample_lengths(*job_.train_data);
    } catch (const DataError&) {
      return;  // all samples are of one size, or nobody knows theirs
    }
    if (lengths.numel() == 0) return;
    DataLoaderOptions options =
        loader_options(recipe(), job_.train_data.get(), true, job_.group->rank(), job_.world_size());
    SamplerOptions usual;
    usual.shuffle = options.shuffle;
    usual.seed = options.seed;
    options.drawing = longest_first(lengths, options.drawing, Sampler(job_.train_data->size(), usual));
    job_.train_loader =
        std::make_unique<DataLoader>(*job_.train_data, job_.transforms->training(), options, job_.device);
  }

  /// Layers that were frozen learn then, and pictures that grow have their last size.
  void begin_in_last_epoch() {
    const bool grows =
        std::any_of(recipe().callbacks.begin(), recipe().callbacks.end(),
                    [](const Component<CallbackKind>& one) { return one.type == "ProgressiveResizing"; });
    if (!recipe().model.unfreeze_at_epoch && !grows) return;
    const int64_t last = recipe().training.num_epochs.value_or(recipe().model.unfreeze_at_epoch.value_or(0) + 1) - 1;
    job_.progress.epoch = last;
    result_.notes.push_back("measured as in epoch " + std::to_string(last) +
                            (grows ? ", in which pictures are largest" : ", in which all layers learn") +
                            "; epochs before take less");
  }

  void count() {
    result_.batch_size = recipe().dataloader.batch_size;
    result_.steps_per_epoch = job_.steps_per_epoch();
    result_.folds = recipe().dataset.all_folds().value_or(1);
    const TrainingSection& training = recipe().training;
    const int64_t by_epochs =
        training.num_epochs ? saturating_product(*training.num_epochs, result_.steps_per_epoch) : INT64_MAX;
    const int64_t total = std::min(by_epochs, training.max_steps.value_or(INT64_MAX));
    if (total < INT64_MAX) result_.total_steps = total;
    for (const Component<CallbackKind>& callback : recipe().callbacks) {
      if (callback.type == "EarlyStopping") result_.notes.emplace_back("EarlyStopping may end the job sooner");
    }
  }

  /// At least `least` optimizer steps, and so many that they take `seconds`; returns how many they were.
  int64_t steps(int64_t least, double seconds) {
    const double begin = clock_seconds();
    int64_t done = 0;
    const auto is_over = [&] {
      const double took = clock_seconds() - begin;
      if (done >= kMostTimedSteps || took >= kMostSeconds) return done >= std::min(least, kLeastLongSteps);
      return done >= least && took >= seconds;
    };
    while (!is_over()) {
      if (!batches_) batches_ = job_.train_loader->iterate(job_.progress.epoch);
      const std::optional<StepOutcome> outcome = train_step(job_, *batches_);
      if (!outcome) throw Error("a signal came while the job was rehearsed");
      job_.callbacks->after_step(outcome->figures);
      ++done;
      if (job_.progress.batch < job_.train_loader->num_batches()) continue;
      batches_.reset();
      job_.progress.batch = 0;
    }
    return done;
  }

  void time_steps() {
    const double begin = clock_seconds();
    const double cpu = cpu_seconds_so_far();
    const int64_t tokens = job_.progress.tokens;
    result_.steps = wants_time_ ? steps(kLeastTimedSteps, kLeastSeconds) : steps(steps_of(kMemoryBatches), 0);
    const auto steps = static_cast<double>(result_.steps);
    result_.step_seconds = (clock_seconds() - begin) / steps;
    result_.step_cpu_seconds = (cpu_seconds_so_far() - cpu) / steps;
    result_.tokens_per_step = (job_.progress.tokens - tokens) / result_.steps;
  }

  /// A checkpoint as the run would write it, in a folder beside its own, while steps go on.
  void save() {
    if (!recipe().checkpoint.every) return;
    namespace fs = std::filesystem;
    fs::path beside = fs::path(output_folder(recipe())).parent_path();
    std::error_code ignored;
    while (!beside.empty() && !fs::exists(beside, ignored)) beside = beside.parent_path();
    std::string folder = ((beside.empty() ? fs::path(".") : beside) / ".trainrun-rehearsal-XXXXXX").string();
    if (!::mkdtemp(folder.data())) {
      result_.notes.push_back("no checkpoint was written: " + beside.string() + " is not writable");
      return;
    }
    try {
      write(folder);
    } catch (...) {
      fs::remove_all(folder, ignored);
      throw;
    }
    fs::remove_all(folder, ignored);
  }

  void write(const std::string& folder) {
    const bool in_background = recipe().checkpoint.background;
    CheckpointWriter writer(CheckpointStore(folder, {}),
                            in_background ? CheckpointWriter::When::kInBackground : CheckpointWriter::When::kAtOnce,
                            {[](int64_t, const std::string&) {}, [] { return false; }});
    const double begin = clock_seconds();
    CheckpointContent content = content_of(job_.capture(in_background ? Job::Copies::kOwn : Job::Copies::kShared));
    writer.save("step-00000001", std::move(content), false);
    result_.copy_seconds = clock_seconds() - begin;
    const double cpu = cpu_seconds_so_far();
    writer.finish();
    result_.write_seconds = clock_seconds() - begin - result_.copy_seconds;
    result_.write_cpu_seconds = cpu_seconds_so_far() - cpu;
    if (!in_background) return;
    Snapshots copies = job_.capture(Job::Copies::kOwn);  // they are there while steps go on
    steps(1, 0);
  }

  void evaluate_all() {
    if (job_.eval_splits.empty() || !recipe().evaluation.every) return;
    for (size_t i = 0; i < job_.eval_splits.size(); ++i) {
      const DataLoader& loader = *job_.eval_splits[i].loader;
      std::vector<double> asked;
      EvaluationScope scope(*job_.callbacks);
      EvaluationControl control = {*job_.group};
      control.scope = &scope;
      control.prefix = recipe().dataset.eval->sets[i].prefix();
      const double begin = clock_seconds();
      control.gives_up = [&] {
        asked.push_back(clock_seconds());
        return asked.back() - begin > (wants_time_ ? kEvaluationSeconds : kShortEvaluation) &&
               static_cast<int64_t>(asked.size()) > kUntimedBatches + 1;
      };
      const auto figures = evaluate(job_.recipe, *job_.model, loader, job_.metrics, control);
      const double took = clock_seconds() - begin;
      const int64_t batches = loader.num_batches();
      result_.evaluation_batches += batches;
      if (figures) {
        result_.evaluation_seconds += took;
        result_.evaluated_batches += batches;
        continue;
      }
      const auto done = static_cast<int64_t>(asked.size()) - 1;
      const double of_batch = (asked.back() - asked[kUntimedBatches]) / static_cast<double>(done - kUntimedBatches);
      result_.evaluation_seconds += took + of_batch * static_cast<double>(batches - done);
      result_.evaluated_batches += done;
    }
    job_.model->train();
  }

  Job& job_;
  bool wants_time_;
  Rehearsal& result_;
  std::unique_ptr<BatchStream> batches_;
};

/// How often something that happens `every` epoch or N steps does in `total` steps: after the last one, too.
template <class Every>
int64_t times_due(const Every& every, int64_t total, int64_t steps_per_epoch) {
  if (!every) return 0;
  const auto* steps = std::get_if<int64_t>(&*every);
  return ceil_divide(total, std::max<int64_t>(steps ? *steps : steps_per_epoch, 1));
}

/// Calls `visit(name, member)` for the members that are written as they are; total_steps may be missing.
template <class R, class Visit>
void each_field(R& r, const Visit& visit) {
  visit("batch_size", r.batch_size);
  visit("steps", r.steps);
  visit("start_seconds", r.start_seconds);
  visit("build_seconds", r.build_seconds);
  visit("step_seconds", r.step_seconds);
  visit("step_cpu_seconds", r.step_cpu_seconds);
  visit("evaluation_seconds", r.evaluation_seconds);
  visit("evaluated_batches", r.evaluated_batches);
  visit("evaluation_batches", r.evaluation_batches);
  visit("copy_seconds", r.copy_seconds);
  visit("write_seconds", r.write_seconds);
  visit("write_cpu_seconds", r.write_cpu_seconds);
  visit("steps_per_epoch", r.steps_per_epoch);
  visit("tokens_per_step", r.tokens_per_step);
  visit("evaluations", r.evaluations);
  visit("saves", r.saves);
  visit("folds", r.folds);
  visit("program_bytes", r.program_bytes);
  visit("built_bytes", r.built_bytes);
  visit("peak_bytes", r.peak_bytes);
  visit("shared_bytes", r.shared_bytes);
  visit("on_gpu", r.on_gpu);
  visit("notes", r.notes);
}

}  // namespace

Rehearsal rehearse(const LoadedRecipe& loaded, RehearsalAim aim) {
  spdlog::set_level(spdlog::level::off);
  Rehearsal result;
  result.program_bytes = memory_of_process("VmRSS");
  Job::Options options;
  options.quiet = true;
  options.dry_run = true;
  if (loaded.recipe.num_processes > 1) {
    options.rendezvous.emplace();
    options.rendezvous->world_size = loaded.recipe.num_processes;
    result.notes.emplace_back("one of " + std::to_string(loaded.recipe.num_processes) +
                              " processes was measured, alone: what they wait for each other is not in the time");
  }
  const double begin = age_of_process();
  Job job(loaded, options);
  result.built_bytes = memory_of_process("VmRSS");
  result.start_seconds = age_of_process();
  result.build_seconds = result.start_seconds - begin;
  Rehearser(job, aim, result).run();
  if (result.total_steps) {
    result.evaluations = job.eval_splits.empty()
                             ? 0
                             : times_due(job.recipe.evaluation.every, *result.total_steps, result.steps_per_epoch);
    const auto& every = job.recipe.checkpoint.every;
    const bool by_clock = every && std::holds_alternative<Duration>(*every);
    result.saves = by_clock ? 1 : times_due(every, *result.total_steps, result.steps_per_epoch);
  }
  result.on_gpu = !job.device.is_cpu();
  result.peak_bytes = result.on_gpu ? peak_memory(job.device) : memory_of_process("VmHWM");
  result.shared_bytes = result.on_gpu ? 0 : memory_of_process("RssFile");
  return result;
}

nlohmann::json to_json(const Rehearsal& r) {
  nlohmann::json json = {{"total_steps", r.total_steps ? nlohmann::json(*r.total_steps) : nlohmann::json()}};
  each_field(r, [&](const char* name, const auto& value) { json[name] = value; });
  return json;
}

Rehearsal rehearsal_of(const nlohmann::json& json) {
  Rehearsal r;
  if (!json.at("total_steps").is_null()) r.total_steps = json.at("total_steps").get<int64_t>();
  each_field(r, [&](const char* name, auto& value) { json.at(name).get_to(value); });
  return r;
}

}  // namespace trainrun
