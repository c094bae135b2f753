#include "runner/job.h"

#include <ATen/Context.h>
#include <malloc.h>
#include <spdlog/spdlog.h>
#include <torch/version.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <string_view>

#include "runner/build.h"
#include "runner/data_checks.h"
#include "runner/device.h"
#include "runner/distributed/data_parallel.h"
#include "runner/distributed/sharded_model.h"
#include "runner/index_checks.h"
#include "runner/recipe_source.h"
#include "runner/train_loop.h"
#include "runner/yaml.h"

namespace trainrun {
namespace {

using nlohmann::json;

constexpr std::string_view kHook = "comm_hook.";  // before the names of its state in a checkpoint

int64_t steps_of(int64_t batches, int64_t accumulation) { return (batches + accumulation - 1) / accumulation; }

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

int64_t sharding_stage(const Recipe& recipe) { return recipe.distributed_type == "FSDP" ? recipe.sharding.stage() : 0; }

/// The program keeps freed memory on its heap for the next step (main.cpp). Where little memory is the aim, what is
/// gathered and freed layer by layer would leave holes there that nothing fits into: large blocks then come from the
/// system and go back to it.
void return_large_blocks() {
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  mallopt(M_TOP_PAD, 1 << 17);
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
          {"metrics", figures_json(progress.metrics)}};
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
  if (!state.at("best").is_null()) progress.best = state.at("best").get<double>();
  for (const json& figure : state.at("metrics"))
    progress.metrics.emplace_back(figure.at(0), figure.at(1).get<double>());
  return progress;
}

/// Counted over the whole job, from where it stands.
std::unique_ptr<Scheduler> build_scheduler(const Job& job) {
  if (!job.recipe.scheduler) return nullptr;
  SchedulerInputs inputs;
  inputs.base = job.optimizer->rates;
  inputs.total_steps = job.total_steps();
  if (job.recipe.scheduler->common.interval == "epoch") {
    const int64_t in_epoch = steps_of(job.progress.batch, job.recipe.training.gradient_accumulation_steps);
    const int64_t to_do = job.total_steps() - job.progress.step + in_epoch;
    inputs.total_steps = job.progress.epoch + steps_of(to_do, job.steps_per_epoch());
  }
  return build_at_place(*job.recipe.scheduler, inputs);
}

/// The batch of an epoch that comes after as many samples as `batch` does, where batches over all ranks had
/// `saved_size` samples and now have another size; at the start of a window of accumulation, so some may come again.
int64_t batch_after_samples(int64_t batch, int64_t saved_size, int64_t size, int64_t window, int64_t num_batches) {
  if (size == saved_size) return batch;
  const int64_t begun = std::min(batch * saved_size / size, num_batches - 1);
  return begun / window * window;
}

}  // namespace

void require_elementwise(const Component<OptimizerKind>& chosen, const Optimizer& optimizer) {
  if (optimizer.is_elementwise()) return;
  throw RecipeError({{chosen.place, chosen.path,
                      chosen.type + " looks at whole tensors, of which ranks have pieces only; write sharding: "
                                    "{strategy: NO_SHARD}, or another optimizer"}});
}

Job::Job(const LoadedRecipe& loaded, const Options& options) : recipe(loaded.recipe) {
  connect(options);
  build_data();
  build_model();
  check_indices(recipe, model->graph(), *train_data, training_info(recipe));
  if (eval_data) check_indices(recipe, model->graph(), *eval_data, evaluation_info(recipe));
  check_batch_norms(recipe, model->graph(), train_data->size(), world_size());
  build_optimizer();
  if (options.dry_run) return;
  if (is_main()) {
    open_folder(loaded);
    start_log(folder->log_path(), options.quiet, options.verbose);
    for (const std::string& note : folder->notes()) spdlog::info(note);
  } else {
    spdlog::set_level(spdlog::level::off);
  }
  if (device.is_cpu() && recipe.device == "auto" && sees_gpu() && recipe.distributed_type != "MULTI_CPU") {
    spdlog::warn("on the CPU, though there is a GPU: {}", open_accelerator().missing);
  }
  if (const std::string text = inferred_text(inferred_of(*train_data)); !text.empty()) spdlog::info(text);
  for (const std::string& text : scale_warnings(recipe, model->graph(), *train_data, transforms->training())) {
    spdlog::warn(text);
  }
  if (!passed_over_.empty()) spdlog::warn("model.weights: " + join(passed_over_, "; "));
  resume();
  build_observers(options);
}

void Job::connect(const Options& options) {
  const Rendezvous place = options.rendezvous.value_or(Rendezvous());
  device = choose_device({recipe.device, recipe.distributed_type, place.local_rank, place.world_size});
  use_device(device, recipe.tf32);
  const bool multi_gpu = recipe.distributed_type == "MULTI_GPU";  // there is a group even if its launcher started one
  if (!options.rendezvous || (place.world_size == 1 && !multi_gpu)) return;
  if (sharding_stage(recipe) > 0) return_large_blocks();
  const std::chrono::seconds timeout(recipe.distributed.timeout);
  using Backend = ProcessGroup::Backend;
  group = std::make_unique<ProcessGroup>(place, timeout, options.dry_run ? Backend::kFake : Backend::kGloo);
  if (!device.is_cpu() && !options.dry_run) group->add_device(*open_accelerator().accelerator, device, timeout);
}

void Job::build_data() {
  const int64_t rank = group ? group->rank() : 0;
  if (!is_main()) group->barrier("rank 0's data");  // which may have to be fetched first
  train_data = open_data(recipe.dataset.train, recipe);
  share_learnt(*train_data, nullptr);
  if (recipe.dataset.eval) {
    eval_data = open_data(*recipe.dataset.eval, recipe);
    share_learnt(*eval_data, train_data->learnt());
  }
  if (group && is_main()) group->barrier("rank 0's data");
  const DatasetInfo train_info = train_data->info();
  const DatasetInfo eval_info = eval_data ? eval_data->info() : DatasetInfo();
  transforms = std::make_unique<DataTransforms>(recipe, &train_info, eval_data ? &eval_info : nullptr);
  transforms->learn(recipe, *train_data);
  train_loader = std::make_unique<DataLoader>(
      *train_data, transforms->training(), loader_options(recipe, train_data.get(), true, rank, world_size()), device);
  if (!eval_data) return;
  eval_loader = std::make_unique<DataLoader>(
      *eval_data, transforms->evaluation(), loader_options(recipe, eval_data.get(), false, rank, world_size()), device);
}

void Job::build_model() {
  if (recipe.deterministic) {
    at::globalContext().setDeterministicAlgorithms(true, false);
    at::globalContext().setDeterministicFillUninitializedMemory(false);  // it costs time and changes no result
    setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);                     // or cuBLAS may add up in any order
  }
  at::manual_seed(static_cast<uint64_t>(recipe.seed));
  model = std::make_unique<Model>(recipe, training_info(recipe),
                                  recipe.dataset.eval ? evaluation_info(recipe) : DatasetInfo());
  passed_over_ = load_initial_weights(recipe, *model);
  if (!device.is_cpu()) model->to(device);
  metrics = model->build_metrics(recipe);
  if (group) build_parallel();
  for (const auto& [name, tensor] : parallel ? parallel->parameters() : model->parameters()) {
    if (tensor.requires_grad()) parameters.push_back(tensor);
  }
}

void Job::build_parallel() {
  for (const auto& module : model->graph().modules()) {
    if (auto* spanning = dynamic_cast<SpansRanks*>(module.get())) spanning->span(*group, recipe.sync_batchnorm);
  }
  if (const int64_t stage = sharding_stage(recipe); stage > 0) {
    if (recipe.sharding.cpu_offload && !device.is_cpu()) {
      throw Error("sharding.cpu_offload: this version steps on the GPU alone; leave it out, or write device: cpu");
    }
    const ShardingOptions options = {stage, recipe.sharding.wrap, recipe.sharding.prefetch};
    parallel = std::make_unique<ShardedModel>(*group, model->graph(), model->buffers(), options);
    return;
  }
  DataParallel::Named named = model->parameters();
  std::erase_if(named, [](const auto& parameter) { return !parameter.second.requires_grad(); });
  const auto& hook = recipe.distributed.comm_hook;
  parallel = std::make_unique<DataParallel>(
      *group, named, model->buffers(),
      DataParallelOptions{recipe.distributed.bucket_cap_mb, recipe.distributed.find_unused_parameters},
      hook ? build_at_place(*hook, CommHookInputs{world_size()}) : nullptr);
}

void Job::build_optimizer() {
  const OptimizerInputs inputs =
      group_parameters(recipe.optimizer, parallel ? parallel->parameters() : model->parameters(), model->lr_scales());
  optimizer = build_at_place(recipe.optimizer, inputs);
  if (shards()) require_elementwise(recipe.optimizer, *optimizer);
  if (recipe.mixed_precision == "fp16") grad_scaler = std::make_unique<GradScaler>(recipe.grad_scaler);
  if (!recipe.scheduler) return scale_rates(optimizer->rates);
  scheduler = build_scheduler(*this);
}

int64_t Job::steps_per_epoch() const {
  return steps_of(train_loader->num_batches(), recipe.training.gradient_accumulation_steps);
}

int64_t Job::total_steps() const {  // those done may have been of other ranks, with other numbers in an epoch
  const TrainingSection& training = recipe.training;
  const int64_t in_epoch = steps_of(progress.batch, training.gradient_accumulation_steps);
  const int64_t by_epochs = training.num_epochs
                                ? progress.step - in_epoch + (*training.num_epochs - progress.epoch) * steps_per_epoch()
                                : INT64_MAX;
  return std::min(by_epochs, training.max_steps.value_or(INT64_MAX));
}

void Job::set_rates() {
  if (!scheduler) return;
  scheduler->set(recipe.scheduler->common.interval == "epoch" ? progress.epoch : progress.step - progress.skipped_steps,
                 optimizer->rates);
  scale_rates(optimizer->rates);
}

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
  CheckpointContent content;
  content.model = parallel ? parallel->gather_model(model->state_dict()) : model->state_dict();
  content.optimizer = parallel ? parallel->gather_state(*optimizer) : optimizer->state();
  if (parallel) {
    for (const auto& [name, tensor] : parallel->hook_state())
      content.optimizer.emplace_back(std::string(kHook) + name, tensor);
  }
  content.state = progress_json(progress);
  content.state["scheduler"] = scheduler ? scheduler->state() : json();
  content.state["grad_scaler"] = grad_scaler ? grad_scaler->state() : json();
  content.state["random"] = json::array();
  for (const at::Device& source : random_sources()) {
    const at::Tensor own = random_state(source).unsqueeze(0);
    const at::Tensor states = group ? group->gather_rows(own, "a checkpoint") : own;
    for (int64_t rank = 0; rank < states.size(0); ++rank) {
      content.state["random"][static_cast<size_t>(rank)][kind_of(source)] = to_hex(states[rank].contiguous());
    }
  }
  content.state["learnt"] = {{"dataset", train_data->learnt()}, {"transforms", transforms->learnt()}};
  content.state["global_batch_size"] = recipe.dataloader.batch_size * world_size();
  content.state["seed"] = recipe.seed;
  content.state["versions"] = {{"trainrun", TRAINRUN_VERSION}, {"torch", TORCH_VERSION}};
  if (is_main()) observers->on_checkpoint({progress.step, checkpoints->save(name, content, best)});
  if (group) group->barrier("a checkpoint");
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
  if (!from && wanted != "auto" && wanted != "no") from = wanted;
  return from;
}

void Job::resume() {
  std::string from = is_main() ? checkpoint_to_resume().value_or("") : "";
  if (group) from = group->share_text(from, "the checkpoint to go on from");
  if (!from.empty()) restore(CheckpointStore::load(from));
  if (is_main() && folder->continues()) truncate_metrics(folder->metrics_path(), progress.step);
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
  const json& own = random.at(rank < random.size() ? rank : 0);
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

void Job::build_observers(const Options& options) {
  if (!is_main()) {
    observers = std::make_unique<Observers>(std::vector<std::unique_ptr<Logger>>());
    return;
  }
  LoggerInputs inputs;
  inputs.output_dir = folder->path();
  inputs.quiet = options.quiet;
  inputs.interactive = !options.quiet && isatty(STDOUT_FILENO) == 1;
  std::vector<std::unique_ptr<Logger>> loggers;
  for (const Component<LoggerKind>& logger : *recipe.logging.report_to) {
    loggers.push_back(build_at_place(logger, inputs));
  }
  observers = std::make_unique<Observers>(std::move(loggers));
  RunInfo info;
  info.name = recipe.name;
  info.output_dir = folder->path();
  info.total_steps = total_steps();
  info.start_step = progress.step;
  info.num_epochs = recipe.training.num_epochs.value_or(0);
  info.num_parameters = model->num_parameters();
  info.train_samples = train_data->size();
  if (eval_data) info.eval_samples = eval_data->size();
  info.effective_batch_size = recipe.dataloader.batch_size * world_size() * recipe.training.gradient_accumulation_steps;
  info.device = device_name(device);
  observers->on_start(info);
}

}  // namespace trainrun
