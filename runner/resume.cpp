// How a job takes its folder, saves its state there and goes on from it.
#include <ATen/Context.h>
#include <spdlog/spdlog.h>
#include <torch/version.h>

#include <string_view>

#include "runner/job.h"
#include "runner/distributed/block_allocator.h"
#include "runner/rank_seed.h"
#include "runner/recipe_source.h"
#include "runner/resume_path.h"

namespace trainrun {
namespace {

using nlohmann::json;

constexpr std::string_view kHook = "comm_hook.";  // before the names of its state in a checkpoint

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

at::Tensor from_hex(const std::string& text) {
  at::Tensor bytes = at::empty({static_cast<int64_t>(text.size() / 2)}, at::kByte);
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes.data_ptr<uint8_t>()[i / 2] = static_cast<uint8_t>(std::stoi(text.substr(i, 2), nullptr, 16));
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

Progress progress_from(const json& state) {
  Progress progress;
  progress.step = state.at("step");
  progress.epoch = state.at("epoch");
  progress.batch = state.at("batch");
  progress.seconds = state.at("seconds");
  progress.loss_sum = state.at("loss_sum");
  progress.loss_count = state.at("loss_count");
  progress.skipped_steps = state.value("skipped_steps", int64_t{0});
  progress.evaluation_due = state.value("evaluation_due", false);
  if (!state.at("best").is_null()) progress.best = state.at("best").get<double>();
  for (const json& figure : state.at("metrics"))
    progress.metrics.emplace_back(figure.at(0), figure.at(1).get<double>());
  return progress;
}

/// The batch of an epoch that comes after as many samples as `batch` does, where batches over all ranks had
/// `saved_size` samples and now have another size; at the start of a window of accumulation, so some may come again.
int64_t batch_after_samples(int64_t batch, int64_t saved_size, int64_t size, int64_t window, int64_t num_batches) {
  if (size == saved_size) return batch;
  const int64_t begun = std::min(batch * saved_size / size, num_batches - 1);
  return begun / window * window;
}

}  // namespace

void Job::open_folder(const LoadedRecipe& loaded) {
  const std::string text =
      "# the recipe of this run, resolved; `trainrun` on this file repeats it\n" + resolved_text(loaded.resolved);
  const auto is_same = [&](const std::string& path) {
    const ResolvedRecipe other = resolve_recipe(path, {});
    return other.problems.empty() && same_recipe(other.value, loaded.resolved);
  };
  const auto mode = recipe.checkpoint.resume == "no" ? RunFolder::Resume::kNever : RunFolder::Resume::kAuto;
  folder = std::make_unique<RunFolder>(
      RunFolder::open(recipe.output_dir.value_or("runs/" + recipe.name), text, is_same, mode));
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
  if (is_main()) observers->on_checkpoint({progress.step, checkpoints->save(name, content, best)});
  if (group) group->barrier("a checkpoint");
  content = {};
  if (shards()) return_free_memory();
}

json Job::state() const {
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
  state["global_batch_size"] = recipe.dataloader.batch_size * world_size();
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
  if (!from.empty()) restore(CheckpointStore::load(from));
  if (is_main() && folder->continues()) {
    truncate_metrics(folder->metrics_path(), progress.step, progress.evaluation_due);
  }
}

void Job::restore(const CheckpointContent& content) {
  {
    const auto whole = parallel ? parallel->make_whole() : nullptr;
    model->load_state_dict(content.model, "the checkpoint");
  }
  restore_optimizer(content.optimizer);
  const json& state = content.state;
  progress = progress_from(state);
  const json& random = state.at("random");  // of each rank
  const int64_t size = recipe.dataloader.batch_size * world_size();
  const int64_t saved_size =
      state.value("global_batch_size", recipe.dataloader.batch_size * static_cast<int64_t>(random.size()));
  progress.batch = batch_after_samples(progress.batch, saved_size, size, recipe.training.gradient_accumulation_steps,
                                       train_loader->num_batches());
  if (size != saved_size) {
    spdlog::info("the checkpoint is of batches of {} samples over {} ranks, now it is {} over {}", saved_size,
                 random.size(), size, world_size());
  }
  const json learnt = state.value("learnt", json::object());
  if (learnt.value("dataset", json()) != train_data->learnt()) {
    throw Error(
        "the training data has changed since the checkpoint was made: categories, or what stands for missing "
        "values, are others now");
  }
  transforms->set_learnt(learnt.value("transforms", json()));
  scheduler = build_scheduler(*this);
  if (scheduler && !state.at("scheduler").is_null()) scheduler->load_state(state.at("scheduler"));
  const json scaled = state.value("grad_scaler", json());
  if (grad_scaler && !scaled.is_null()) grad_scaler->load_state(scaled);
  const auto rank = static_cast<size_t>(group ? group->rank() : 0);
  if (rank >= random.size()) {  // a rank that the checkpoint did not have
    at::manual_seed(rank_seed(static_cast<uint64_t>(recipe.seed), group->rank(), progress.step));
    return;
  }
  const json& own = random.at(rank);
  for (const at::Device& source : random_sources()) {  // a run that began on the CPU has none of a GPU
    if (own.contains(kind_of(source))) set_random_state(source, from_hex(own.at(kind_of(source))));
  }
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
