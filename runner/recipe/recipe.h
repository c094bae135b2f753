#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "registry/catalog.h"
#include "registry/formats/text/new_tokens.h"
#include "registry/kinds/monitor.h"
#include "registry/language/named.h"
#include "registry/language/pattern.h"
#include "runner/recipe/choices.h"
#include "runner/recipe/duration.h"
#include "runner/recipe/eval_sets.h"

// The recipe as plain structs: what a recipe file may say, section by section. Names, defaults, ranges and
// documentation stand in recipe.cpp, once; errors, the JSON Schema and the reference page follow from there.

namespace trainrun {

/// `epoch`, a number of optimizer steps, or null for never.
using Every = std::optional<std::variant<int64_t, std::string>>;
/// The same, or a time.
using EveryOrTime = std::optional<std::variant<int64_t, Duration, std::string>>;

/// `model.blocks`: named pieces with parameters, used like layer types.
struct Blocks {
  std::vector<std::string> names;
};

template <>
struct Codec<Blocks> {
  static std::optional<Blocks> read(const Value& value, Reader& reader);
  static nlohmann::json schema(SchemaContext& context);
  static nlohmann::json write(const Blocks&) { return nlohmann::json::object(); }
  static std::string type_name() { return "mapping of blocks"; }
};

/// What becomes of the tensors whose name a pattern of `rename` matches.
struct RenameSection {
  std::optional<std::string> to;
  bool transpose = false;
  static void describe(Fields<RenameSection>& f);
};

/// Weights to begin with: `weights: PATH`, or a mapping.
struct WeightsSection {
  std::string path;
  std::string key;
  Named<std::optional<std::variant<std::string, RenameSection>>> rename;
  bool strict = true;
  static void describe(Fields<WeightsSection>& f);
  void check(Checker& checker) const;
};

struct ModelSection {
  Blocks blocks;
  LayerList layers;
  std::optional<InitializerRules> init;
  std::optional<std::variant<std::string, WeightsSection>> weights;
  std::vector<NamePattern> freeze;
  std::optional<int64_t> unfreeze_at_epoch;
  std::vector<NamePattern> checkpoint_activations;
  std::optional<Component<AdapterKind>> adapters;
  static void describe(Fields<ModelSection>& f);
  void check(Checker& checker) const;
};

/// A frozen model beside the recipe's own, such as a teacher: its output is read by losses and metrics under its name.
struct RoleSection {
  std::optional<std::string> from;
  std::optional<LayerList> layers;
  std::optional<std::variant<std::string, WeightsSection>> weights;
  static void describe(Fields<RoleSection>& f);
};

/// `fold: {part: 2/5, stratify: true}`, `fold: {folds: 5, index: 1}`, or, for all of them, `fold: {folds: 5}`
struct FoldSection {
  std::optional<std::string> part;
  std::optional<int64_t> folds;
  std::optional<int64_t> index;
  bool stratify = false;
  std::optional<std::string> group;
  static void describe(Fields<FoldSection>& f);
  void check(Checker& checker) const;
};

struct DatasetSection : NewTokens {
  Component<DatasetKind> train;
  std::optional<EvalSets> eval;
  std::vector<Component<TransformKind>> transforms;
  std::vector<Component<TransformKind>> train_transforms;
  std::vector<Component<TransformKind>> eval_transforms;
  std::optional<std::variant<std::string, FoldSection>> fold;
  std::optional<Component<DatasetKind>> whole;  // what `train` was, where a fold was applied
  TokenGrowth token_growth;                     // what the new tokens have made of the tokenizer; set by loading
  static void describe(Fields<DatasetSection>& f);
  void check(Checker& checker) const;
  /// Where there is a fold, makes `train` and `eval` the two parts of what `train` was; after reading. Of all folds it is
  /// the first.
  void apply_fold(uint64_t seed);
  /// How many folds there are, where all are to be trained; else nothing.
  std::optional<int64_t> all_folds() const;
  /// The samples of `whole`, which is open, that fold `number` of all is evaluated on: [n] int64, in the order of that
  /// fold's evaluation data.
  at::Tensor held_out(const Dataset& whole, int64_t number, uint64_t seed) const;
};

struct SamplerSection {
  std::string type;
  std::variant<std::string, std::vector<double>> weights = std::string("balanced");
  std::optional<std::string> field;
  std::optional<int64_t> num_samples;
  bool replacement = true;
  static void describe(Fields<SamplerSection>& f);
  void check(Checker& checker) const;
};

struct DataloaderSection {
  int64_t batch_size = 1;
  std::optional<int64_t> eval_batch_size;
  /// How many samples are computed together; "auto": as many as fit into the memory, which `run` finds out.
  std::optional<std::variant<int64_t, std::string>> micro_batch_size;
  int64_t pieces = 1;  // that `cut_batches` has made of each batch; not written in the recipe
  bool shuffle = true;
  std::optional<std::variant<std::string, SamplerSection>> sampler;
  bool drop_last = false;
  bool group_by_length = false;
  int64_t num_workers = 1;
  static void describe(Fields<DataloaderSection>& f);
  void check(Checker& checker) const;
  bool has_auto_micro_batch() const {
    return micro_batch_size && std::holds_alternative<std::string>(*micro_batch_size);
  }
  /// The sampler, also where only its name is written.
  std::optional<SamplerSection> chosen_sampler() const;
};

struct TrainingSection {
  std::optional<int64_t> num_epochs;
  std::optional<int64_t> max_steps;
  int64_t gradient_accumulation_steps = 1;
  std::optional<Duration> max_time;
  std::optional<int64_t> max_tokens;
  std::optional<double> max_grad_norm;
  std::optional<double> max_grad_value;
  std::optional<LrScaling> lr_scaling;
  bool fuse = true;
  Convolutions convolutions = Convolutions::kFast;
  static void describe(Fields<TrainingSection>& f);
};

struct EvaluationSection {
  Every every = std::variant<int64_t, std::string>("epoch");
  std::vector<std::string> tta;
  static void describe(Fields<EvaluationSection>& f);
};

struct KeepBestSection : Monitored {
  static void describe(Fields<KeepBestSection>& f);
};

struct CheckpointSection {
  EveryOrTime every = std::variant<int64_t, Duration, std::string>(std::string("epoch"));
  std::optional<int64_t> keep_last = 2;
  std::optional<KeepBestSection> keep_best;
  std::string resume = "auto";
  bool background = true;
  std::vector<std::string> allow_changed;
  static void describe(Fields<CheckpointSection>& f);
};

struct LoggingSection {
  int64_t every_steps = 100;
  std::optional<double> peak_flops;
  std::optional<std::vector<Component<LoggerKind>>> report_to;  // set after loading
  static void describe(Fields<LoggingSection>& f);
};

struct DistributedSection {
  int64_t timeout = 100;
  std::optional<int64_t> meeting_timeout;
  std::optional<int64_t> evaluation_timeout;
  std::optional<int64_t> checkpoint_timeout;
  int64_t bucket_cap_mb = 25;
  bool find_unused_parameters = false;
  std::optional<Component<CommHookKind>> comm_hook;
  bool pin_cores = true;
  static void describe(Fields<DistributedSection>& f);
};

struct ShardingSection {
  ShardingStrategy strategy = ShardingStrategy::kFullShard;
  std::optional<int64_t> zero_stage;
  std::vector<std::string> wrap;
  bool prefetch = true;
  bool cpu_offload = false;
  static void describe(Fields<ShardingSection>& f);
  void check(Checker& checker) const;
  /// DeepSpeed's number of what is sharded: 0 nothing, 1 optimizer state, 2 gradients as well, 3 parameters as well.
  int64_t stage() const;
};

struct GradScalerSection {
  double init_scale = 65536;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;
  static void describe(Fields<GradScalerSection>& f);
};

struct Recipe {
  int64_t version = 1;
  std::string name;
  int64_t seed = 42;
  bool deterministic = false;
  std::optional<std::string> output_dir;  // null: runs/NAME
  std::vector<std::string> plugins;
  ModelSection model;
  Named<RoleSection> models;
  LossList loss;
  std::vector<Component<MetricKind>> metrics;
  DatasetSection dataset;
  DataloaderSection dataloader;
  Component<OptimizerKind> optimizer;
  std::optional<Component<SchedulerKind>> scheduler;
  TrainingSection training;
  EvaluationSection evaluation;
  std::vector<Component<CallbackKind>> callbacks;
  DistributedType distributed_type = DistributedType::kNo;
  int64_t num_processes = 1;
  int64_t num_machines = 1;
  int64_t machine_rank = 0;
  std::optional<std::string> main_process_ip;
  std::optional<int64_t> main_process_port;
  DistributedSection distributed;
  ShardingSection sharding;
  bool sync_batchnorm = false;
  DeviceChoice device;
  bool tf32 = false;
  MixedPrecision mixed_precision = MixedPrecision::kNo;
  GradScalerSection grad_scaler;
  CheckpointSection checkpoint;
  LoggingSection logging;
  std::variant<int64_t, std::string> num_threads = std::string("auto");
  std::shared_ptr<const FusionRegistry> fusions;  // those there are, plugins' included; not written in the recipe
  static void describe(Fields<Recipe>& f);
  void check(Checker& checker) const;
  /// What ranks keep a part of only, as ShardingSection::stage; 0 also where the job is not sharded at all.
  int64_t sharding_stage() const { return distributed_type == DistributedType::kFsdp ? sharding.stage() : 0; }
  /// What `training.lr_scaling` multiplies each learning rate of the recipe by, with so many ranks.
  double lr_factor(int64_t world_size) const;
  /// Whether the clock decides when the job ends, or when a checkpoint is made.
  bool heeds_clock() const;
  /// Where `micro_batch_size` is a number, makes it the batch size, and accumulates the gradients of so many batches more;
  /// after reading.
  void cut_batches();
};

}  // namespace trainrun
