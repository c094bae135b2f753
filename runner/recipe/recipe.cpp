#include "runner/recipe/recipe.h"

#include <algorithm>
#include <cmath>

#include "registry/data/views.h"
#include "registry/language/pattern.h"
#include "runner/base/arithmetic.h"

namespace trainrun {
namespace {

// Far beyond any use, and so that no product of them with sizes of models and data leaves an int64.
constexpr double kMostProcesses = 1e6;
constexpr double kMostSeconds = 1e9;
constexpr double kMostMebibytes = 1e9;

using nlohmann::json;

/// "2/5": the second of five; numbers from 0 and how many, or nothing.
std::optional<std::pair<int64_t, int64_t>> parse_fold(const std::string& text) {
  const size_t slash = text.find('/');
  if (slash == std::string::npos) return std::nullopt;
  const auto number = parse_integer(text.substr(0, slash));
  const auto count = parse_integer(text.substr(slash + 1));
  if (!number || !count || *count < 2 || *number < 1 || *number > *count) return std::nullopt;
  return std::pair(*number - 1, *count);
}

std::string fold_fault(const std::string& text) {
  return parse_fold(text) ? "" : "expected 1/5 for the first of five folds, found '" + text + "'";
}

/// What is no fold, as a JSON Schema; not what is only known once variables have their values.
constexpr const char* kNoFold =
    R"({"type": "string", "pattern": "^[^$]*$", "not": {"type": "string", "pattern": "^[1-9][0-9]*/([2-9]|[1-9][0-9]+)$"}})";

json no_fold_at(const std::string& key) { return {{"properties", {{key, {{"not", json::parse(kNoFold)}}}}}}; }

}  // namespace

void FoldSection::describe(Fields<FoldSection>& f) {
  f.optional("part", &FoldSection::part).doc("2/5: the second of five parts is for evaluation");
  f.optional("folds", &FoldSection::folds)
      .at_least(2)
      .doc(
          "instead of part: the number of parts. All folds are trained one after another, each as a run in its own "
          "folder, fold-0, fold-1, …; beside these are written the mean and the deviation of their figures, and a "
          "prediction for each sample by the fold that was not trained on it");
  f.optional("index", &FoldSection::index).at_least(0).doc("with folds: train only this fold, counted from 0");
  f.either("part", "folds");
  f.optional("stratify", &FoldSection::stratify).doc("each part has its share of every class of the target");
  f.optional("group", &FoldSection::group)
      .doc(
          "samples with the same value in this column, such as a patient, stay in one part: a field, a column of the "
          "file, or, for image files, folder: the name of the folder that contains the file");
  f.relation(no_fold_at("part"));
}

void FoldSection::check(Checker& checker) const {
  if (const std::string fault = part ? fold_fault(*part) : ""; !fault.empty()) checker.fail("part", fault);
  if (!index) return;
  if (!folds) checker.fail("index", "is for folds; part says both");
  if (folds && *index >= *folds) {
    checker.fail("index", "there are only " + std::to_string(*folds) + " folds, numbered from 0");
  }
}

void DatasetSection::describe(Fields<DatasetSection>& f) {
  f.required("train", &DatasetSection::train).doc("the training data");
  f.optional("eval", &DatasetSection::eval)
      .doc("the evaluation data; or several sets by name, {clean: {type: …}, noisy: {type: …}}");
  f.optional("transforms", &DatasetSection::transforms).doc("applied to training and evaluation data, in order");
  f.optional("train_transforms", &DatasetSection::train_transforms).doc("applied before transforms, in training only");
  f.optional("eval_transforms", &DatasetSection::eval_transforms).doc("applied before transforms, in evaluation only");
  f.optional("fold", &DatasetSection::fold)
      .doc(
          "2/5: the training data are divided into five parts by the seed; the second is for evaluation, the others "
          "are for training; or a mapping with part, stratify and group; or {folds: 5}, which trains all five");
  NewTokens::describe_into(f, "; language models get rows for them");
  f.relation(no_fold_at("fold"));
  f.rule({.when = {the("fold").is_given()},
          .all = {the("eval").is_missing()},
          .at = "fold",
          .message = "makes its own evaluation data out of train; leave out eval"});
}

void DatasetSection::check(Checker& checker) const {
  if (const auto fault = NewTokens::fault()) checker.fail(fault->first, fault->second);
  if (!fold) return;
  const auto* part = std::get_if<std::string>(&*fold);
  if (const std::string fault = part ? fold_fault(*part) : ""; !fault.empty()) checker.fail("fold", fault);
}

void DatasetSection::apply_fold(uint64_t seed) {
  if (!fold || eval || !train.build) return;
  whole = train;
  const auto* section = std::get_if<FoldSection>(&*fold);
  const bool is_counted = section && section->folds;
  const auto parsed = is_counted ? std::optional(std::pair(section->index.value_or(0), *section->folds))
                                 : parse_fold(section ? section->part.value_or("") : std::get<std::string>(*fold));
  if (!parsed) return;
  Fold own{parsed->first, parsed->second, {}};
  if (section) own.by = {section->stratify, section->group};
  const auto part = [all = train.build, own, seed](bool training) {
    return [=](const DatasetInputs& inputs) { return fold_of(all(inputs), own, seed, training); };
  };
  EvalSets::One held_out = {"", train};
  held_out.data.build = part(false);
  eval = EvalSets{{std::move(held_out)}};
  train.build = part(true);
}

std::optional<int64_t> DatasetSection::all_folds() const {
  const auto* section = fold ? std::get_if<FoldSection>(&*fold) : nullptr;
  return section && !section->index ? section->folds : std::nullopt;
}

at::Tensor DatasetSection::held_out(const Dataset& whole, int64_t number, uint64_t seed) const {
  const auto& section = std::get<FoldSection>(*fold);
  return fold_samples_of(whole, {number, *section.folds, {section.stratify, section.group}}, seed, false);
}

void DistributedSection::describe(Fields<DistributedSection>& f) {
  f.optional("timeout", &DistributedSection::timeout)
      .at_least(1)
      .at_most(kMostSeconds)
      .unit("seconds")
      .doc("how long a rank may be silent, and how long the others wait for it in a step, before they give up");
  f.optional("meeting_timeout", &DistributedSection::meeting_timeout)
      .at_least(1)
      .unit("seconds")
      .doc("how long a rank waits at the start for all others to connect; timeout by default");
  f.optional("evaluation_timeout", &DistributedSection::evaluation_timeout)
      .at_least(1)
      .unit("seconds")
      .doc(
          "how much longer than others a rank that is not silent may take in an evaluation; 10 times timeout by "
          "default");
  f.optional("checkpoint_timeout", &DistributedSection::checkpoint_timeout)
      .at_least(1)
      .unit("seconds")
      .doc(
          "how long the other ranks wait for rank 0, if it is not silent, while it reads data, or reads or writes a "
          "checkpoint; 10 times timeout by default");
  f.optional("bucket_cap_mb", &DistributedSection::bucket_cap_mb)
      .at_least(1)
      .at_most(kMostMebibytes)
      .unit("MiB")
      .doc("size of the groups of gradients that are reduced together during the backward pass");
  f.optional("find_unused_parameters", &DistributedSection::find_unused_parameters)
      .doc("allow steps in which a rank does not use every layer; costs a walk over the graph in each step");
  f.optional("comm_hook", &DistributedSection::comm_hook)
      .doc(
          "how gradients are sent: BF16Compression, FP16Compression, PowerSGD, or a plugin's hook; unchanged by "
          "default");
  f.optional("pin_cores", &DistributedSection::pin_cores)
      .doc("pin each rank that trainrun starts to its own share of the cores");
}

void ShardingSection::describe(Fields<ShardingSection>& f) {
  f.optional("strategy", &ShardingSection::strategy)
      .doc(
          "FULL_SHARD: each rank keeps only its part of parameters, gradients and optimizer state; SHARD_GRAD_OP: of "
          "gradients and optimizer state; NO_SHARD: each keeps all");
  f.optional("zero_stage", &ShardingSection::zero_stage)
      .at_least(1)
      .at_most(3)
      .doc("the strategy in DeepSpeed's words: 3 is FULL_SHARD, 2 is SHARD_GRAD_OP, 1 shards only the optimizer state");
  f.optional("wrap", &ShardingSection::wrap)
      .doc(
          "regular expressions: a layer whose whole state name matches one is gathered and sharded as a unit; by "
          "default each of the model's own layers");
  f.optional("prefetch", &ShardingSection::prefetch)
      .doc("gather the next layer's parameters while a layer computes; costs the memory of that layer");
  f.optional("cpu_offload", &ShardingSection::cpu_offload)
      .doc("keep optimizer state in the machine's memory: always so on the CPU; not possible on a GPU in this version");
}

void ShardingSection::check(Checker& checker) const {
  for (const std::string& pattern : wrap) {
    const std::string fault = pattern_fault(pattern);
    if (!fault.empty()) checker.fail("wrap", fault);
  }
}

int64_t ShardingSection::stage() const {
  if (zero_stage) return *zero_stage;
  if (strategy == ShardingStrategy::kFullShard) return 3;
  return strategy == ShardingStrategy::kShardGradOp ? 2 : 0;
}

void GradScalerSection::describe(Fields<GradScalerSection>& f) {
  f.optional("init_scale", &GradScalerSection::init_scale).greater_than(0).doc("initial scale of the loss");
  f.optional("growth_factor", &GradScalerSection::growth_factor)
      .greater_than(1)
      .doc("factor by which the scale grows after growth_interval steps without an overflow");
  f.optional("backoff_factor", &GradScalerSection::backoff_factor)
      .greater_than(0)
      .less_than(1)
      .doc("factor by which the scale is multiplied after an overflow");
  f.optional("growth_interval", &GradScalerSection::growth_interval)
      .at_least(1)
      .unit("optimizer steps")
      .doc("length of the interval without an overflow after which the scale grows");
}

namespace {

void relate_keys(Fields<Recipe>& f) {
  f.rule(
      {.all = {the("mixed_precision").is_not("fp8")},
       .at = "mixed_precision",
       .message = "fp8 needs products of scaled float8 matrices, which LibTorch has only on recent GPUs; write bf16"});
  const std::string disagree = "is {device}, but distributed_type is {distributed_type}; leave one of the two out";
  f.rule({.when = {the("distributed_type").is("MULTI_GPU")},
          .all = {the("device").is_not("cpu")},
          .at = "device",
          .message = disagree});
  f.rule({.when = {the("distributed_type").is("MULTI_CPU")},
          .all = {the("device").matches("^(?!cuda)")},
          .at = "device",
          .message = disagree});
  f.rule({.when = {the("num_processes").is_above(1)},
          .all = {the("distributed_type").is_not("NO")},
          .at = "num_processes",
          .message = "several processes need a distributed_type, such as MULTI_CPU"});
  for (const char* key : {"name", "output_dir"}) {  // the system would end the folder's path at a 0
    f.rule({.all = {the(key).matches(R"(^[^\x00-\x1f\x7f]*$)")},
            .at = key,
            .message = "cannot have a control character, such as a line end or a tab"});
  }
  // Without output_dir it is the name of a folder in runs, which must not be any other folder.
  f.rule({.all = {the("name").matches("^[^/]*$")},
          .at = "name",
          .message = "cannot have a '/', because it is the name of one folder, runs/NAME; for a run in another folder, "
                     "write output_dir"});
  f.rule({.all = {the("name").matches(R"(^(?!\.\.?$))")},
          .at = "name",
          .message = "cannot be '{name}', which stands for another folder than the run's own"});
  f.rule({.all = {the("name").matches("^(?!-)")},
          .at = "name",
          .message = "cannot begin with '-', which commands take for the beginning of an option"});
  f.relation(json::parse(R"({"properties": {"device": {"not": {"type": "string", "pattern": "^[^$]*$", "not": {
                                 "pattern": "^(auto|cpu|cuda(:(0|[1-9][0-9]?))?)$"}}}}})"));
  f.relation(json::parse(  // what is best is known from evaluations
      R"({"if": {"required": ["checkpoint"],
                 "properties": {"checkpoint": {"type": "object", "required": ["keep_best"],
                                               "properties": {"keep_best": {"type": "object"}}}}},
          "then": {"properties": {"dataset": {"anyOf": [{"required": ["eval"],
                                                         "properties": {"eval": {"not": {"type": "null"}}}},
                                                        {"required": ["fold"],
                                                         "properties": {"fold": {"not": {"type": "null"}}}}]},
                                  "evaluation": {"properties": {"every": {"not": {"type": "null"}}}}}}})"));
}

/// How many processes there are, and where they meet.
void describe_processes(Fields<Recipe>& f) {
  f.optional("num_processes", &Recipe::num_processes)
      .at_least(1)
      .at_most(kMostProcesses)
      .doc("number of processes, over all machines");
  f.optional("num_machines", &Recipe::num_machines)
      .at_least(1)
      .doc("number of machines; each starts its share of the processes, unless a launcher starts them all");
  f.optional("machine_rank", &Recipe::machine_rank).at_least(0).doc("number of this machine, from 0");
  f.optional("main_process_ip", &Recipe::main_process_ip)
      .doc("address of rank 0, where the processes meet, unless a launcher gives it");
  f.optional("main_process_port", &Recipe::main_process_port)
      .at_least(1)
      .at_most(65535)
      .doc("port of rank 0, at which the processes meet");
}

}  // namespace

void Recipe::describe(Fields<Recipe>& f) {
  f.optional("version", &Recipe::version).at_least(1).at_most(1).doc("version of the recipe language");
  f.optional("name", &Recipe::name)
      .not_empty("needs at least one character: a name, such as that of the recipe's file, which it is by default")
      .doc(
          "name of the run, and of its folder in runs: without '/' and control characters, and with no '-' at the "
          "beginning; the file's name by default");
  f.optional("seed", &Recipe::seed)
      .at_least(0)
      .doc("seed of all random numbers: initial weights, order of samples, dropout");
  f.optional("deterministic", &Recipe::deterministic)
      .doc("use only deterministic algorithms; an operation that has none is an error");
  f.optional("output_dir", &Recipe::output_dir)
      .not_empty("needs at least one character: the path of a folder; without output_dir it is runs/NAME")
      .doc("folder of the run; runs/NAME by default");
  f.optional("plugins", &Recipe::plugins).doc("shared libraries that register more components");
  f.required("model", &Recipe::model).doc("the layers");
  f.optional("models", &Recipe::models)
      .doc(
          "further models by name, which are never trained: losses and metrics read each one's output under its name; "
          "one may be a teacher, or the model as it was before training");
  f.required("loss", &Recipe::loss).doc("the loss to minimize");
  f.optional("metrics", &Recipe::metrics).doc("metrics that an evaluation computes besides the loss");
  f.required("dataset", &Recipe::dataset).doc("the data");
  f.optional("dataloader", &Recipe::dataloader).doc("how samples become batches");
  f.required("optimizer", &Recipe::optimizer).doc("how gradients change the weights");
  f.optional("scheduler", &Recipe::scheduler).doc("how the learning rate changes; constant by default");
  f.required("training", &Recipe::training).doc("how long to train, and how a step is made");
  f.optional("evaluation", &Recipe::evaluation).doc("when to evaluate; at the end in any case, unless every is null");
  f.optional("callbacks", &Recipe::callbacks)
      .doc("callbacks, called in this order: weight averages, early stopping, …");
  f.optional("distributed_type", &Recipe::distributed_type)
      .doc("how several processes share the job; Accelerate's names");
  describe_processes(f);
  f.optional("distributed", &Recipe::distributed).doc("how several processes work together");
  f.optional("sharding", &Recipe::sharding).doc("what each rank keeps only a part of, if distributed_type is FSDP");
  f.optional("sync_batchnorm", &Recipe::sync_batchnorm)
      .doc("BatchNorm layers normalize over the batches of all ranks, as SyncBatchNorm does");
  f.optional("device", &Recipe::device)
      .words({"auto", "cpu", "cuda"})
      .doc("auto: a GPU if there is one; cpu; cuda, or cuda:1 for the second GPU");
  f.optional("num_threads", &Recipe::num_threads)
      .at_least(1)
      .at_most(4096)
      .one_of({"auto"})
      .doc(
          "threads of each operation on the CPU; auto: OMP_NUM_THREADS, or else by the number of CPUs and the size of "
          "the model");
  f.optional("tf32", &Recipe::tf32).doc("float32 products in TensorFloat-32 on GPUs that have it");
  f.optional("mixed_precision", &Recipe::mixed_precision)
      .doc("precision of the layers' arithmetic (autocast); weights, optimizer and loss stay in float32");
  f.optional("grad_scaler", &Recipe::grad_scaler).doc("how the loss is scaled if mixed_precision is fp16");
  f.optional("checkpoint", &Recipe::checkpoint).doc("what is saved, and when");
  f.optional("logging", &Recipe::logging).doc("what is logged, where, and how often");
  relate_keys(f);
}

double Recipe::lr_factor(int64_t world_size) const {
  if (!training.lr_scaling) return 1;
  const int64_t accumulated = training.gradient_accumulation_steps / dataloader.pieces;
  const double batches = static_cast<double>(world_size) * static_cast<double>(accumulated);
  return *training.lr_scaling == LrScaling::kLinear ? batches : std::sqrt(batches);
}

void Recipe::cut_batches() {
  const auto* size = dataloader.micro_batch_size ? std::get_if<int64_t>(&*dataloader.micro_batch_size) : nullptr;
  if (!size || *size < 1 || dataloader.batch_size % *size != 0) return;  // reported where it is read
  dataloader.pieces = dataloader.batch_size / *size;
  dataloader.batch_size = *size;
  training.gradient_accumulation_steps = saturating_product(training.gradient_accumulation_steps, dataloader.pieces);
}

bool Recipe::heeds_clock() const {
  return training.max_time || (checkpoint.every && std::holds_alternative<Duration>(*checkpoint.every));
}

/// The system's own bounds, which would otherwise be met when the data have been read.
void check_length_of_paths(const Recipe& recipe, Checker& checker) {
  constexpr size_t kMostBytesOfName = 255 - 5;     // with room for "-9999", of runs that have the same name
  constexpr size_t kMostBytesOfPath = 4095 - 100;  // of files in that folder
  const auto part_fault = [&](const std::string& path) -> std::string {
    for (size_t begin = 0, end = 0; begin <= path.size(); begin = end + 1) {
      end = std::min(path.find('/', begin), path.size());
      if (end - begin <= kMostBytesOfName) continue;
      return "has a part of " + std::to_string(end - begin) + " bytes, but the name of a run's folder can have " +
             std::to_string(kMostBytesOfName);
    }
    return "";
  };
  const std::string name_fault = part_fault(recipe.name);
  if (!name_fault.empty()) return checker.fail("name", name_fault);
  const std::string output_dir = recipe.output_dir.value_or("");
  const std::string fault = part_fault(output_dir);
  if (!fault.empty()) return checker.fail("output_dir", fault);
  if (output_dir.size() <= kMostBytesOfPath) return;
  checker.fail("output_dir", "has " + std::to_string(output_dir.size()) + " bytes, but a path can have " +
                                 std::to_string(kMostBytesOfPath));
}

void Recipe::check(Checker& checker) const {
  check_length_of_paths(*this, checker);
  if (distributed.comm_hook && sharding_stage() > 0) {
    checker.fail("distributed", "a comm_hook is for gradients that are not sharded; leave one of the two out");
  }
  if (num_processes % num_machines != 0) {
    checker.fail("num_machines", std::to_string(num_processes) + " processes cannot be divided evenly over " +
                                     std::to_string(num_machines) + " machines");
  }
  if (machine_rank >= num_machines) {
    checker.fail("machine_rank", "is " + std::to_string(machine_rank) + ", but num_machines is " +
                                     std::to_string(num_machines) + "; machines are numbered from 0");
  }
}

}  // namespace trainrun
