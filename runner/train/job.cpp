#include "runner/train/job.h"

#include <ATen/Context.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdlib>

#include "registry/graph/shape_mode.h"
#include "registry/kinds/build.h"
#include "registry/kinds/dataset_facts.h"
#include "registry/tensors/step_division.h"
#include "runner/base/arithmetic.h"
#include "runner/control/control.h"
#include "runner/data/data_contract.h"
#include "runner/data/kept_tokenizers.h"
#include "runner/device/device.h"
#include "runner/device/threads.h"
#include "runner/distributed/agreement.h"
#include "runner/distributed/data_parallel.h"
#include "runner/distributed/sharded_model.h"
#include "runner/generate/text_codec.h"
#include "runner/model/data_checks.h"
#include "runner/model/index_checks.h"
#include "runner/model/initial_weights.h"
#include "runner/model/metric_classes.h"
#include "runner/model/pretrained_weights.h"
#include "runner/model/token_additions.h"
#include "runner/process/block_allocator.h"
#include "runner/process/torch_settings.h"
#include "runner/train/batch_norm_estimate.h"
#include "runner/train/drawn_model.h"
#include "runner/train/job_notes.h"
#include "runner/train/job_parts.h"
#include "runner/train/own_callbacks.h"
#include "runner/train/rank_seed.h"
#include "runner/train/run_change.h"
#include "runner/train/start_notes.h"

namespace trainrun {
namespace {

int64_t steps_of(int64_t batches, int64_t accumulation) { return ceil_divide(batches, accumulation); }

GroupTimeouts timeouts_of(const DistributedSection& section) {
  constexpr int64_t kLonger = 10;  // rank 0 alone reads and writes; evaluations may take some ranks longer
  const auto seconds = [](int64_t number) { return std::chrono::seconds(number); };
  return {seconds(section.timeout), seconds(section.meeting_timeout.value_or(section.timeout)),
          seconds(section.evaluation_timeout.value_or(kLonger * section.timeout)),
          seconds(section.checkpoint_timeout.value_or(kLonger * section.timeout))};
}

}  // namespace

std::unique_ptr<Scheduler> build_scheduler(const Job& job) { return build_scheduler(job, job.rates); }

std::unique_ptr<Scheduler> build_scheduler(const Job& job, std::vector<GroupRates> base) {
  if (!job.recipe.scheduler) return nullptr;
  SchedulerInputs inputs;
  inputs.base = std::move(base);
  inputs.total_steps = job.total_steps();
  if (job.recipe.scheduler->common.interval == Interval::kEpoch) {
    const int64_t in_epoch = steps_of(job.progress.batch, job.recipe.training.gradient_accumulation_steps);
    const int64_t to_do = job.total_steps() - job.progress.step + in_epoch;
    inputs.total_steps = job.progress.epoch + steps_of(to_do, job.steps_per_epoch());
  }
  return build_at_place(*job.recipe.scheduler, inputs);
}

void require_elementwise(const Component<OptimizerKind>& chosen, const Optimizer& optimizer) {
  if (optimizer.is_elementwise()) return;
  throw RecipeError({{chosen.place, chosen.path,
                      chosen.type + " needs whole tensors, but ranks have only pieces of them; write sharding: "
                                    "{strategy: NO_SHARD}, or another optimizer"}});
}

Job::Job(const LoadedRecipe& loaded, const Options& options)
    : recipe(loaded.recipe), missing_(loaded.missing), quiet_(options.quiet), verbose_(options.verbose) {
  connect(loaded, options);
  build_data();
  build_model();
  check_indices(recipe, model->graph(), *train_data, training_info(recipe));
  for (size_t i = 0; i < eval_splits.size(); ++i) {
    check_indices(recipe, model->graph(), *eval_splits[i].data, evaluation_info(recipe, i));
  }
  check_batch_norms(recipe, model->graph(), train_data->size(), world_size());
  build_optimizer();
  account = std::make_unique<StepAccount>(device, *group, progress, [this] { optimizer->last_step_was_skipped(); });
  build_callbacks();
  parts_ = parts_of_job(*this);
  if (options.dry_run) return;
  if (is_main()) {
    open_folder(loaded);
    kept_tokenizers = keep_tokenizers(recipe, folder->path());
    start_log(folder->log_path(), options.quiet, options.verbose, folder->is_private());
    for (const std::string& note : folder->notes()) spdlog::info(note);
  } else {
    spdlog::set_level(spdlog::level::off);
  }
  if (device.is_cpu() && recipe.device.is_auto() && sees_gpu() &&
      recipe.distributed_type != DistributedType::kMultiCpu) {
    spdlog::warn("on the CPU, though there is a GPU: {}", open_accelerator().missing);
  }
  if (is_main()) log_start_notes(loaded);
  if (!group->why_not_shared().empty()) {
    spdlog::info("the ranks exchange through Gloo, not through shared memory: {}", group->why_not_shared());
  }
  if (const std::string text = inferred_text(train_data->facts().inferred()); !text.empty()) spdlog::info(text);
  std::vector<std::pair<std::string, const Dataset*>> sets = {{"dataset.train", train_data.get()}};
  for (size_t i = 0; i < eval_splits.size(); ++i) {
    sets.emplace_back(recipe.dataset.eval->sets[i].path(), eval_splits[i].data.get());
  }
  for (const std::string& note : notes_of_all(sets)) spdlog::warn(note);
  JobLength length = {total_steps(), steps_per_epoch(), recipe.training.num_epochs};
  if (length.total_steps == INT64_MAX) length.total_steps.reset();  // until training.max_time
  for (const std::string& note : job_notes(recipe, model->graph(), *train_data, transforms->training(), length)) {
    spdlog::warn(note);
  }
  for (const std::string& note : pretrained_notes(model->graph())) spdlog::warn(note);
  for (const std::string& note : notes_of_tokenizers(recipe)) spdlog::warn(note);
  if (const std::string text = added_tokens_text(recipe); !text.empty()) spdlog::info(text);
  for (const std::string& text : new_rows_texts(recipe, *model)) spdlog::info(text);
  if (!passed_over_.empty()) {
    spdlog::warn("model.weights: skipped tensors that do not match the model, which keeps its initial values there: " +
                 join(passed_over_, "; "));
  }
  resume();
  if (shards()) return_free_memory();
  build_loggers(options);
  group->set_step(progress.step);
  group->set_phase(Phase::kStep);
}

void Job::connect(const LoadedRecipe& loaded, const Options& options) {
  const Rendezvous place = options.rendezvous.value_or(Rendezvous());
  device = options.device.value_or(
      choose_device({recipe.device, recipe.distributed_type, place.local_rank, place.world_size}));
  use_device(device, recipe.tf32);
  const bool multi_gpu =
      recipe.distributed_type == DistributedType::kMultiGpu;  // there is a group even if its launcher started one
  if (!options.rendezvous || (place.world_size == 1 && !multi_gpu)) return;
  if (recipe.sharding_stage() > 0) reuse_large_blocks(kLargeShardedTensor);
  const GroupTimeouts timeouts = timeouts_of(recipe.distributed);
  using Backend = ProcessGroup::Backend;
  group = std::make_unique<ProcessGroup>(place, timeouts, options.dry_run ? Backend::kFake : Backend::kGloo);
  if (options.dry_run) return;
  require_agreement(*group, facts_of_recipe(loaded.resolved));
  if (!device.is_cpu()) group->add_device(*open_accelerator().accelerator, device, timeouts.step);
}

void Job::build_data() {
  if (!is_main()) group->barrier("rank 0's data");  // which may have to be fetched first
  train_data = open_data(recipe.dataset.train, recipe);
  share_learnt(*train_data, nullptr);
  const DataContract contract = DataContract::of(*train_data, nullptr);
  for (size_t i = 0; recipe.dataset.eval && i < recipe.dataset.eval->sets.size(); ++i) {
    const std::string path = recipe.dataset.eval->sets[i].path();
    try {
      eval_splits.push_back({open_data(recipe.dataset.eval->sets[i].data, recipe), nullptr});
      contract.read(*eval_splits[i].data, path);
    } catch (const ReadError&) {
      throw;
    } catch (const DataError& error) {  // the training data may be the same file, which was read without a fault
      const std::string fault = error.what();
      throw DataError(fault.starts_with(path) ? fault : path + ": " + fault);
    }
  }
  if (is_main()) group->barrier("rank 0's data");
  if (!group->is_alone() && !group->is_fake()) {
    Facts facts = facts_of_data(*train_data, "dataset.train");
    for (size_t i = 0; i < eval_splits.size(); ++i) {
      facts.merge(facts_of_data(*eval_splits[i].data, recipe.dataset.eval->sets[i].path()));
    }
    require_agreement(*group, facts);
  }
  const DatasetInfo train_info = train_data->info();
  std::vector<DatasetInfo> eval_infos;
  for (const EvalSplit& split : eval_splits) eval_infos.push_back(split.data->info());
  transforms = std::make_unique<DataTransforms>(recipe, &train_info, eval_infos);
  transforms->learn(recipe, *train_data);
  train_loader =
      std::make_unique<DataLoader>(*train_data, transforms->training(),
                                   loader_options(recipe, train_data.get(), true, group->rank(), world_size()), device);
  for (size_t i = 0; i < eval_splits.size(); ++i) {
    const Dataset& data = *eval_splits[i].data;
    eval_splits[i].loader = std::make_unique<DataLoader>(
        data, transforms->evaluation(i), loader_options(recipe, &data, false, group->rank(), world_size()), device);
  }
}

void Job::build_model() {
  if (recipe.deterministic) compute_deterministically();
  at::manual_seed(static_cast<uint64_t>(recipe.seed));
  const int64_t flops_before = ShapeMode::flops();
  const DatasetInfo info = training_info(recipe);
  check_tokens(recipe, info);
  model = std::make_unique<Model>(recipe, info, recipe.dataset.eval ? evaluation_info(recipe) : DatasetInfo());
  const int64_t flops_of_sample = (ShapeMode::flops() - flops_before) / kExampleBatch;
  set_num_threads(recipe.num_threads, flops_of_sample * recipe.dataloader.batch_size);
  passed_over_ = load_initial_weights(recipe, *model, missing_.empty());
  if (model->roles()) {
    const std::vector<std::string> of_roles = model->roles()->load();
    passed_over_.insert(passed_over_.end(), of_roles.begin(), of_roles.end());
  }
  if (!device.is_cpu()) model->to(device);
  metrics = model->build_metrics(recipe);
  name_classes(metrics, recipe, info,
               [&](const std::string& field) { return train_data->facts().field(field).class_names; });
  model->set_units(DataContract::of(*train_data, transforms.get()).scalings());
  build_parallel();
  if (!is_main()) at::manual_seed(rank_seed(static_cast<uint64_t>(recipe.seed), group->rank(), 0));
  const NamedTensors own = parallel->parameters();
  for (const auto& [name, tensor] : own) {
    if (tensor.requires_grad()) parameters.push_back(tensor);
  }
  frozen = model->frozen_for_now(recipe, own);
}

void Job::build_parallel() {
  if (group->is_alone()) {
    parallel = std::make_unique<LoneModel>(model->parameters());
    return;
  }
  std::vector<std::shared_ptr<torch::nn::Module>> modules = model->loss_states();
  for (const auto& module : model->graph().modules()) modules.push_back(module);
  for (const auto& module : modules) {
    if (auto* spanning = dynamic_cast<SpansRanks*>(module.get())) spanning->span(*group, recipe.sync_batchnorm);
  }
  watch = std::make_unique<ParameterWatch>(model->graph());
  if (const int64_t stage = recipe.sharding_stage(); stage > 0) {
    if (recipe.sharding.cpu_offload && !device.is_cpu()) {
      throw Error(
          "sharding.cpu_offload: this version runs the optimizer only on the GPU; leave it out, or write device: cpu");
    }
    const ShardingOptions options = {stage, recipe.sharding.wrap, recipe.sharding.prefetch};
    auto sharded = std::make_unique<ShardedModel>(*group, model->graph(), model->buffers(), options);
    model->set_brackets(sharded->brackets());
    parallel = std::move(sharded);
    return;
  }
  NamedTensors named = model->parameters();
  std::erase_if(named, [](const auto& parameter) { return !parameter.second.requires_grad(); });
  const auto& hook = recipe.distributed.comm_hook;
  parallel = std::make_unique<DataParallel>(
      *group, named, model->buffers(),
      DataParallelOptions{recipe.distributed.bucket_cap_mb, recipe.distributed.find_unused_parameters},
      hook ? build_at_place(*hook, CommHookInputs{world_size()}) : nullptr);
}

/// Ranks of one machine whose gradients are all the same need not all make the same step.
void Job::divide_step() {
  if (group->is_alone() || shards() || recipe.distributed.comm_hook) return;
  auto* divides = dynamic_cast<DividesStep*>(optimizer.get());
  const auto divisible = divides ? divides->divisible_step() : std::nullopt;
  if (divisible) division_ = group->divide(*divisible);
  if (!division_) return;
  divides->divide(*division_);
  return_free_memory();  // where the state was
}

void Job::build_optimizer() {
  const OptimizerInputs inputs = group_parameters(recipe.optimizer, parallel->parameters(), model->lr_scales(recipe));
  optimizer = build_at_place(recipe.optimizer, inputs);
  if (shards()) require_elementwise(recipe.optimizer, *optimizer);
  divide_step();
  rates = optimizer->initial_rates();
  for (GroupRates& group : rates) group.lr *= recipe.lr_factor(world_size());
  if (recipe.mixed_precision == MixedPrecision::kFp16)
    grad_scaler = std::make_unique<GradScaler>(recipe.grad_scaler, device);
  if (!recipe.scheduler) return scale_rates(rates);
  scheduler = build_scheduler(*this);
}

int64_t Job::steps_per_epoch() const {
  return steps_of(train_loader->num_batches(), recipe.training.gradient_accumulation_steps);
}

int64_t Job::total_steps() const {  // those done may have been of other ranks, with other numbers in an epoch
  const TrainingSection& training = recipe.training;
  const int64_t in_epoch = steps_of(progress.batch, training.gradient_accumulation_steps);
  const int64_t by_epochs =
      training.num_epochs
          ? saturating_sum(
                progress.step - in_epoch,
                saturating_product(std::max<int64_t>(*training.num_epochs - progress.epoch, 0), steps_per_epoch()))
          : INT64_MAX;
  return std::min(by_epochs, training.max_steps.value_or(INT64_MAX));
}

bool Job::is_line_due(int64_t step) const {
  return step % changed.log_every.value_or(recipe.logging.every_steps) == 0 || step == total_steps();
}

void Job::set_rates() {
  if (!scheduler) return;
  scheduler->set(scheduler_time(), rates);
  scale_rates(rates);
}

int64_t Job::scheduler_time() const {
  return recipe.scheduler->common.interval == Interval::kEpoch ? progress.epoch
                                                               : progress.step - progress.skipped_steps;
}

void Job::build_callbacks() {
  TrainingAccess training;
  training.total_steps = [this] { return total_steps(); };
  training.estimate_batch_norms = [this] {
    const Tensors random = random_states();
    const auto prepare = [this](Batch& batch) { callbacks->before_forward(batch); };
    trainrun::estimate_batch_norms(*model, *train_loader->iterate(progress.epoch), prepare, *group);
    set_random_states(random);
  };
  callbacks = std::make_unique<Callbacks>(
      recipe, std::make_unique<ModelRun>(*model, *parallel, *group, recipe, progress.step, std::move(training)));
  add_own_callbacks(recipe, scheduler, progress.best, *callbacks);
  callbacks->use(texts_of(*this));
  callbacks->use([this]() -> SampleLossBook& {
    if (sample_losses) throw Error("the recipe has another SampleLosses; one keeps all losses");
    sample_losses = sample_losses_of(*this);
    return *sample_losses;
  });
}

void Job::open_control() {
  try {
    auto opened = std::make_unique<Control>(folder->path());
    control = opened.get();
    nlohmann::json changes = nlohmann::json::array();
    for (const RunChange& change : progress.changes) changes.push_back(to_json(change));
    control->set_changes(std::move(changes));
    loggers->add({{}, "control.sock", "trainrun ctl"}, std::move(opened));
  } catch (const FileError& error) {
    spdlog::warn("trainrun ctl cannot reach this run: {}", error.what());
  }
}

bool Job::counts_gradients(int64_t step) const {
  return loggers && loggers->wants_histograms(step) && !shards() && !grad_scaler;
}

void Job::build_loggers(const Options& options) {
  loggers = std::make_unique<Loggers>();
  if (!is_main()) return;
  LoggerInputs inputs;
  inputs.output_dir = folder->path();
  inputs.quiet = options.quiet;
  inputs.interactive = !options.quiet && isatty(STDOUT_FILENO) == 1;
  for (const Component<LoggerKind>& logger : *recipe.logging.report_to) loggers->add(logger, inputs);
  open_control();
  if (loggers->sees_tensors()) loggers->on_graph(drawn_model(model->graph()));
  if (loggers->wants_histograms(0) && (shards() || grad_scaler)) {
    spdlog::warn("tensorboard: histograms_every writes no {}",
                 shards() ? "histograms here: each rank holds only pieces of the weights and gradients"
                          : "histograms of gradients here: with mixed_precision fp16 they are those of a scaled loss");
  }
  RunInfo info;
  info.name = recipe.name;
  info.output_dir = folder->path();
  info.total_steps = total_steps();
  info.start_step = progress.step;
  info.num_epochs = recipe.training.num_epochs.value_or(0);
  info.num_parameters = model->num_parameters();
  info.train_samples = train_data->size();
  for (const EvalSplit& split : eval_splits) info.eval_samples = info.eval_samples.value_or(0) + split.data->size();
  info.effective_batch_size = saturating_product(recipe.dataloader.batch_size, world_size());
  info.effective_batch_size = saturating_product(
      info.effective_batch_size, std::min(recipe.training.gradient_accumulation_steps, train_loader->num_batches()));
  info.device = device_name(device);
  info.recipe = folder->recipe_text();
  info.evaluation_due = progress.evaluation_due;
  loggers->on_start(info);
}

}  // namespace trainrun
