// How a job takes its folder, saves its state there and goes on from it.
#include <ATen/Context.h>
#include <spdlog/spdlog.h>
#include <torch/version.h>

#include <algorithm>
#include <cctype>
#include <string_view>

#include "runner/base/arithmetic.h"
#include "runner/data/data_fingerprint.h"
#include "runner/distributed/block_allocator.h"
#include "runner/recipe/recipe_source.h"
#include "runner/run/checkpoint_state.h"
#include "runner/run/recipe_file.h"
#include "runner/run/resume_path.h"
#include "runner/run/run_identity.h"
#include "runner/train/job.h"
#include "runner/train/rank_seed.h"

namespace trainrun {
namespace {

using nlohmann::json;

constexpr std::string_view kHook = "comm_hook.";  // before the names of its state in a checkpoint
constexpr const char* kAllowChangedData =
    "; put the data back as they were, or write checkpoint.allow_changed=[data] to go on with them as they are";

std::string to_hex(const at::Tensor& bytes) {
  static constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  const auto* data = bytes.const_data_ptr<uint8_t>();
  for (int64_t i = 0; i < bytes.numel(); ++i) {
    text += kDigits[data[i] >> 4];
    text += kDigits[data[i] & 15];
  }
  return text;
}

/// Throws CheckpointError for what `to_hex` does not write.
at::Tensor from_hex(const std::string& text) {
  const auto is_digit = [](unsigned char c) { return std::isdigit(c) != 0 || (c >= 'a' && c <= 'f'); };
  if (text.size() % 2 != 0 || !std::ranges::all_of(text, is_digit)) {
    throw CheckpointError("state.json: the state of the random numbers is not in hexadecimal digits");
  }
  const auto digit = [&](size_t i) {
    return text[i] <= '9' ? text[i] - '0' : text[i] - 'a' + 10;  // NOLINT(readability-magic-numbers)
  };
  at::Tensor bytes = at::empty({static_cast<int64_t>(text.size() / 2)}, at::kByte);
  for (size_t i = 0; i < text.size(); i += 2) {
    bytes.data_ptr<uint8_t>()[i / 2] = static_cast<uint8_t>(digit(i) * 16 + digit(i + 1));
  }
  return bytes;
}

at::Tensor random_state(at::Device device) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

void set_random_state(at::Device device, const at::Tensor& state) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

/// A device's name in checkpoints, which may be resumed on another of its kind.
std::string kind_of(at::Device device) { return device.is_cpu() ? "cpu" : "cuda"; }

json figures_json(const std::vector<std::pair<std::string, double>>& figures) {
  json list = json::array();
  for (const auto& [name, value] : figures) list.push_back({name, value});
  return list;
}

json progress_json(const Progress& progress) {
  return {{"step", progress.step},
          {"epoch", progress.epoch},
          {"batch", progress.batch},
          {"seconds", progress.seconds},
          {"loss_sum", progress.loss_sum},
          {"loss_count", progress.loss_count},
          {"skipped_steps", progress.skipped_steps},
          {"best", progress.best ? json(*progress.best) : json()},
          {"metrics", figures_json(progress.metrics)},
          {"evaluation_due", progress.evaluation_due}};
}

/// Throws CheckpointError for a number below 0.
int64_t count_from(const json& state, const char* key) {
  const json& number = state.at(key);
  const bool fits = number.is_number_integer() && number.get<int64_t>() >= 0;
  if (!fits)
    throw CheckpointError(std::string("state.json: ") + key + " is " + number.dump() + ", expected a number >= 0");
  return number.get<int64_t>();
}

Progress progress_from(const json& state) {
  Progress progress;
  progress.step = count_from(state, "step");
  progress.epoch = count_from(state, "epoch");
  progress.batch = count_from(state, "batch");
  progress.seconds = state.at("seconds");
  progress.loss_sum = state.at("loss_sum");
  progress.loss_count = count_from(state, "loss_count");
  if (state.contains("skipped_steps")) progress.skipped_steps = count_from(state, "skipped_steps");
  progress.evaluation_due = state.value("evaluation_due", false);
  if (!state.at("best").is_null()) progress.best = state.at("best").get<double>();
  for (const json& figure : state.at("metrics"))
    progress.metrics.emplace_back(figure.at(0), figure.at(1).get<double>());
  return progress;
}

/// What decides which checkpoint is the best; null: nothing.
json monitor_json(const Recipe& recipe) {
  const auto& keep_best = recipe.checkpoint.keep_best;
  return keep_best ? json{keep_best->monitor, keep_best->mode} : json();
}

/// The batch of an epoch that comes after as many samples as `batch` does, where batches over all ranks had
/// `saved_size` samples and now have another size; at the start of a window of accumulation, so some may come again.
int64_t batch_after_samples(int64_t batch, int64_t saved_size, int64_t size, int64_t window, int64_t num_batches) {
  if (size == saved_size) return batch;
  const int64_t begun = std::min(saturating_product(batch, saved_size) / size, num_batches - 1);
  return begun / window * window;
}

}  // namespace

void Job::open_folder(const LoadedRecipe& loaded) {
  const bool evaluation_counts = scheduler && !scheduler->monitor().empty();
  const auto compare = [&](const std::string& path) {
    const ResolvedRecipe other = resolve_recipe(path, {});
    if (!other.unreadable.empty()) throw Error(other.unreadable + "; it may be the recipe of this run: try again");
    if (!other.problems.empty()) return RunFolder::Kinship{false, other.problems[0].to_string()};
    RecipeDifference difference = compare_recipes(other.value, loaded.resolved, evaluation_counts);
    if (difference.numbers.empty()) return RunFolder::Kinship{true, "", std::move(difference.others)};
    constexpr size_t kMostNamed = 3;
    if (difference.numbers.size() > kMostNamed) difference.numbers.resize(kMostNamed);
    return RunFolder::Kinship{false, join(difference.numbers)};
  };
  const auto mode = recipe.checkpoint.resume == "no" ? RunFolder::Resume::kNever : RunFolder::Resume::kAuto;
  folder = std::make_unique<RunFolder>(
      RunFolder::open(recipe.output_dir.value_or("runs/" + recipe.name), recipe_file(loaded), compare, mode));
  RetentionPolicy policy;
  policy.keep_last = recipe.checkpoint.keep_last.value_or(0);
  policy.keep_best = recipe.checkpoint.keep_best.has_value();
  checkpoints = std::make_unique<CheckpointStore>(folder->checkpoints_path(), policy);
}

void Job::save(const std::string& name, bool best) {
  if (group) group->set_step(progress.step);
  const PhaseScope phase(group.get(), Phase::kCheckpoint);
  CheckpointContent content;
  content.model = parallel ? parallel->gather_model(model->state_dict()) : model->state_dict();
  content.optimizer = parallel ? parallel->gather_state(*optimizer) : optimizer->state();
  if (parallel) {
    for (const auto& [name, tensor] : parallel->hook_state())
      content.optimizer.emplace_back(std::string(kHook) + name, tensor);
  }
  content.state = state();
  if (is_main()) observers->on_checkpoint({progress.step, write(name, content, best)});
  if (group) group->barrier("a checkpoint");
  content = {};
  if (shards()) return_free_memory();
}

json Job::state() {
  json state = progress_json(progress);
  state["scheduler"] = scheduler ? scheduler->state() : json();
  state["grad_scaler"] = grad_scaler ? grad_scaler->state() : json();
  state["random"] = json::array();
  for (const at::Device& source : random_sources()) {
    const at::Tensor own = random_state(source).unsqueeze(0);
    const at::Tensor states = group ? group->gather_rows(own, "a checkpoint") : own;
    for (int64_t rank = 0; rank < states.size(0); ++rank) {
      state["random"][static_cast<size_t>(rank)][kind_of(source)] = to_hex(states[rank].contiguous());
    }
  }
  state["learnt"] = {{"dataset", train_data->learnt()}, {"transforms", transforms->learnt()}};
  if (is_main()) state["data"] = data_fingerprint();
  state["monitor"] = monitor_json(recipe);
  state["global_batch_size"] = saturating_product(recipe.dataloader.batch_size, world_size());
  state["seed"] = recipe.seed;
  state["versions"] = {{"trainrun", TRAINRUN_VERSION}, {"torch", TORCH_VERSION}};
  return state;
}

void Job::amend(const std::string& name, bool best) {
  const PhaseScope phase(group.get(), Phase::kCheckpoint);
  const json amended = state();
  if (is_main()) checkpoints->amend(name, amended, best);
  if (group) group->barrier("a checkpoint");
}

Tensors Job::random_states() const {
  Tensors states;
  for (const at::Device& source : random_sources()) states.push_back(random_state(source));
  return states;
}

void Job::set_random_states(const Tensors& states) const {
  const std::vector<at::Device> sources = random_sources();
  for (size_t i = 0; i < sources.size(); ++i) set_random_state(sources[i], states[i]);
}

/// The folder may have been removed or renamed, even while we write to it.
std::string Job::write(const std::string& name, const CheckpointContent& content, bool best) {
  const auto make_whole = [&] {
    if (!folder->make_whole()) return false;
    start_log(folder->log_path(), quiet_, verbose_);
    spdlog::warn("{} was removed or renamed while the run went on: it is made anew, without what lay in it",
                 folder->path());
    return true;
  };
  make_whole();
  try {
    return checkpoints->save(name, content, best);
  } catch (const FileError&) {
    if (!make_whole()) throw;
  }
  return checkpoints->save(name, content, best);
}

std::vector<at::Device> Job::random_sources() const {
  if (device.is_cpu()) return {at::kCPU};
  return {at::kCPU, device};
}

std::optional<std::string> Job::checkpoint_to_resume() {
  std::optional<std::string> from;
  if (folder->continues()) {
    from = checkpoints->newest([](const std::string& text) { spdlog::warn(text); });
  }
  const std::string& wanted = recipe.checkpoint.resume;
  if (!from && wanted != "auto" && wanted != "no") from = checkpoint_to_go_on_from(wanted);
  return from;
}

void Job::resume() {
  std::string from = is_main() ? checkpoint_to_resume().value_or("") : "";
  if (group) from = group->share_text(from, "the checkpoint to go on from");
  if (!from.empty()) restore(from);
  if (is_main() && folder->continues()) {
    truncate_metrics(folder->metrics_path(), progress.step, progress.evaluation_due);
  }
}

void Job::restore(const std::string& from) {
  const CheckpointContent content = CheckpointStore::load(from);
  const auto refuse = [&](const std::string& why) {
    return CheckpointError(from + " does not hold the state of this job: " + why.substr(0, why.find('\n')));
  };
  try {
    check_data(content.state);
    {
      const auto whole = parallel ? parallel->make_whole() : nullptr;
      model->load_state_dict(content.model, "the checkpoint");
    }
    restore_optimizer(content.optimizer);
    const json& state = content.state;
    restore_progress(state);
    transforms->set_learnt(state.value("learnt", json::object()).value("transforms", json()));
    scheduler = build_scheduler(*this);
    if (scheduler && !state.at("scheduler").is_null()) scheduler->load_state(state.at("scheduler"));
    const json scaled = state.value("grad_scaler", json());
    if (grad_scaler && !scaled.is_null()) grad_scaler->load_state(scaled);
    restore_random(state.at("random"));
  } catch (const json::exception& error) {
    throw refuse(plain_message(error));
  } catch (const c10::Error& error) {
    throw refuse(error.what_without_backtrace());
  }
  check_what_is_left(from);
}

/// By key: `dataset.train`, `dataset.eval`.
void Job::check_data(const json& state) {
  const auto& names = recipe.checkpoint.allow_changed;
  const bool allowed = std::find(names.begin(), names.end(), "data") != names.end();
  const json saved = state.value("data", json::object());  // there were checkpoints without
  for (const std::string key : {"train", "eval"}) {
    if (!saved.contains(key) || !data_fingerprint().contains(key)) continue;
    const DataDifference difference = compare_fingerprints(saved.at(key), data_fingerprint().at(key));
    if (!difference.doubt.empty()) spdlog::warn("dataset.{}: {}", key, difference.doubt);
    if (difference.change.empty()) continue;
    const std::string change = "dataset." + key + " has changed since the checkpoint was made: " + difference.change;
    if (!allowed) throw DataError(change + kAllowChangedData);
    spdlog::warn("{}; checkpoint.allow_changed says to go on", change);
  }
  const json learnt = state.value("learnt", json::object()).value("dataset", json());
  if (learnt == train_data->learnt()) return;
  const std::string message =
      "dataset.train has changed since the checkpoint was made: categories, or what stands for missing values, are "
      "others now";
  if (!allowed) throw DataError(message + kAllowChangedData);
  spdlog::warn("{}; those of the checkpoint are kept, as checkpoint.allow_changed says", message);
  train_data->set_learnt(learnt);
  if (eval_data) eval_data->set_learnt(learnt);
}

void Job::restore_progress(const json& state) {
  progress = progress_from(state);
  const auto num_ranks = static_cast<int64_t>(state.at("random").size());
  const int64_t size = saturating_product(recipe.dataloader.batch_size, world_size());
  const int64_t saved_size =
      state.value("global_batch_size", saturating_product(recipe.dataloader.batch_size, num_ranks));
  if (saved_size < 1) throw CheckpointError("state.json: global_batch_size is " + std::to_string(saved_size));
  const int64_t num_batches = train_loader->num_batches();
  progress.batch =
      batch_after_samples(progress.batch, saved_size, size, recipe.training.gradient_accumulation_steps, num_batches);
  if (size != saved_size) {
    spdlog::info("the checkpoint is of batches of {} samples over {} ranks, now it is {} over {}", saved_size,
                 num_ranks, size, world_size());
  }
  if (progress.batch >= num_batches) {  // the data have become fewer: of this epoch nothing is left
    ++progress.epoch;
    progress.batch = 0;
  }
  const json monitor = monitor_json(recipe);
  if (state.value("monitor", monitor) != monitor) {
    spdlog::info("checkpoint.keep_best watches another figure than before: the best so far is forgotten");
    progress.best.reset();
  }
}

void Job::restore_random(const json& random) {
  const auto rank = static_cast<size_t>(group ? group->rank() : 0);
  if (!is_main() && rank >= random.size()) {  // a rank that the checkpoint did not have
    at::manual_seed(rank_seed(static_cast<uint64_t>(recipe.seed), group->rank(), progress.step));
    return;
  }
  const json& own = random.at(rank);
  for (const at::Device& source : random_sources()) {  // a run that began on the CPU has none of a GPU
    if (own.contains(kind_of(source))) set_random_state(source, from_hex(own.at(kind_of(source)).get<std::string>()));
  }
}

void Job::check_what_is_left(const std::string& from) const {
  if (progress.step < total_steps()) return;
  const TrainingSection& training = recipe.training;
  const std::string at =
      from + " is of step " + std::to_string(progress.step) + ", epoch " + std::to_string(progress.epoch);
  const bool beyond = progress.step > training.max_steps.value_or(INT64_MAX) ||
                      progress.epoch > training.num_epochs.value_or(INT64_MAX);
  if (beyond) {
    throw Error(at + ", beyond what the recipe asks for (" +
                (progress.step > training.max_steps.value_or(INT64_MAX)
                     ? "training.max_steps: " + std::to_string(*training.max_steps)
                     : "training.num_epochs: " + std::to_string(*training.num_epochs)) +
                "): nothing is left to train; ask for more, or write checkpoint.resume=no to begin anew");
  }
  if (progress.evaluation_due) return;
  spdlog::warn("{}, the last one that the recipe asks for: nothing is left to train", at);
}

const json& Job::data_fingerprint() {
  if (!data_fingerprint_) {
    json both = json::object();
    both["train"] = fingerprint_of(*train_data, recipe.dataset.train);
    if (eval_data) both["eval"] = fingerprint_of(*eval_data, *recipe.dataset.eval);
    data_fingerprint_ = std::move(both);
  }
  return *data_fingerprint_;
}

void Job::restore_optimizer(const NamedTensors& saved) {
  NamedTensors own;
  NamedTensors hook;
  for (const auto& [name, tensor] : saved) {
    if (name.starts_with(kHook)) {
      hook.emplace_back(name.substr(kHook.size()), tensor);
    } else {
      own.emplace_back(name, tensor);
    }
  }
  if (parallel) own = parallel->own_state(own);
  optimizer->load_state({own.begin(), own.end()});
  if (!parallel || hook.empty()) return;
  if (hook[0].second.size(0) == world_size()) return parallel->load_hook_state(hook);
  spdlog::warn("the checkpoint is of {} ranks: what its communication hook remembered of each is left behind",
               hook[0].second.size(0));
}

}  // namespace trainrun
