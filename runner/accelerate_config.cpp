#include "runner/accelerate_config.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <memory>
#include <sstream>

#include "registry/files/file_io.h"
#include "runner/accelerate_keys.h"
#include "runner/limits.h"
#include "runner/yaml.h"

namespace trainrun {
namespace {

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

/// A value that switches nothing on: null, no, false, none, '', [], {} or {enabled: false}.
bool is_off(const Value& value) {
  if (value.is_list()) return value.items().empty();
  if (const Value* enabled = value.find("enabled")) return is_off(*enabled);
  if (value.is_map()) return value.entries().empty();
  const std::string text = upper(value.text());
  const std::vector<std::string> words = {"", "NO", "FALSE", "OFF", "NONE", "NULL"};
  return value.is_null() || std::find(words.begin(), words.end(), text) != words.end();
}

bool is_on(const Value* value) { return value && !is_off(*value); }

/// Upper case; the name for a number that counts names from 1.
std::string named(const Value& value, const std::vector<std::string>& names) {
  const auto number = parse_integer(value.text());
  const bool counts = number && *number >= 1 && *number <= static_cast<int64_t>(names.size());
  return counts ? names[static_cast<size_t>(*number) - 1] : upper(value.text());
}

std::string in_yaml(const std::string& text) {
  std::string yaml = to_yaml(Value::scalar(text, /*quoted=*/true, {}));
  yaml.pop_back();  // its newline
  return yaml;
}

std::string joined_path(const std::string& section, const std::string& key) {
  return section.empty() ? key : section + "." + key;
}

/// A mapping of the file, with the prefix that Accelerate lets its keys go without.
struct Section {
  const Value* value = nullptr;  // null: it is not there
  std::string path;
  std::string prefix;

  std::string whole_key(const std::string& key) const { return key.starts_with(prefix) ? key : prefix + key; }
  const Value* find(const std::string& key) const {
    if (!value) return nullptr;
    for (const Value::Entry& entry : value->entries()) {
      if (whole_key(entry.key) == key) return entry.value.is_null() ? nullptr : &entry.value;
    }
    return nullptr;
  }
};

/// Turns one file into settings, notes and problems.
class Mapper {
 public:
  Mapper(const Value& root, const ReadText& read) : root_{&root, "", ""}, read_(read) {}

  AccelerateConfig map() {
    if (is_amazon()) return std::move(config_);
    walk(root_, top_keys());
    kind_ = find_kind();
    map_processes();
    map_device();
    map_dynamo();
    map_sections();
    map_precision();
    if (!meaningless_.empty()) note(*root_.value, "", "without meaning here: " + join(meaningless_));
    return std::move(config_);
  }

 private:
  void set(const std::string& key, const std::string& yaml, const Value& from) {
    config_.settings.push_back({key, yaml, from.place()});
  }
  void note(const Value& value, const std::string& path, const std::string& message) {
    config_.notes.push_back({value.place(), path, message});
  }
  void refuse(const Value& value, const std::string& path, const std::string& message) {
    config_.problems.push_back({value.place(), path, message});
  }

  /// As it stands: what is wrong with it the recipe's reader says, at this place.
  void copy(const std::string& key, const Value& value, const std::string& path) {
    if (!value.is_scalar()) return refuse(value, path, "expected one value, found " + value.describe());
    set(key, parse_number(value.text()) ? value.text() : in_yaml(value.text()), value);
  }

  bool is_amazon() {
    const Value* environment = root_.find("compute_environment");
    if (!environment || environment->text() == "LOCAL_MACHINE") return false;
    const std::string advice = "; start trainrun in the container that SageMaker runs, without this file";
    refuse(*environment, "compute_environment",
           upper(environment->text()) == "AMAZON_SAGEMAKER"
               ? "a SageMaker job is submitted with Amazon's own SDK" + advice
               : "unknown environment '" + environment->text() + "'; known: LOCAL_MACHINE, AMAZON_SAGEMAKER");
    return true;
  }

  void walk(const Section& section, const std::vector<AccelerateKey>& rows) {
    std::vector<std::string> keys;
    for (const AccelerateKey& row : rows) keys.emplace_back(row.key);
    for (const Value::Entry& entry : section.value->entries()) {
      const std::string key = section.whole_key(entry.key);
      const std::string path = joined_path(section.path, entry.key);
      const auto row =
          std::find_if(rows.begin(), rows.end(), [&](const AccelerateKey& known) { return key == known.key; });
      if (row == rows.end()) {
        config_.problems.push_back(
            {entry.key_place, path, "Accelerate's files have no such key" + suggestion(key, keys)});
      } else {
        take(*row, entry.value, path);
      }
    }
  }

  void take(const AccelerateKey& row, const Value& value, const std::string& path) {
    if (row.fate == KeyFate::kCopied && !value.is_null()) copy(row.text, value, path);
    if (row.fate == KeyFate::kRefused && !is_off(value)) refuse(value, path, row.text);
    if (row.fate == KeyFate::kMeaningless && !is_off(value)) meaningless_.push_back(path);
  }

  /// Null where there is none, or none that can be had.
  const AccelerateType* find_kind() {
    const Value* written = root_.find("distributed_type");
    if (!written) {
      refuse(*root_.value, "distributed_type",
             "is not there; write 'NO' for one process, MULTI_CPU, MULTI_GPU or FSDP");
      return nullptr;
    }
    const std::string name = is_off(*written) ? "NO" : upper(written->text());
    const auto kind = std::find_if(accelerate_types().begin(), accelerate_types().end(),
                                   [&](const AccelerateType& known) { return name == known.name; });
    if (kind == accelerate_types().end()) {
      std::vector<std::string> names;
      for (const AccelerateType& known : accelerate_types()) names.emplace_back(known.name);
      refuse(*written, "distributed_type", "unknown type '" + written->text() + "'" + suggestion(name, names));
      return nullptr;
    }
    if (*kind->refusal) {
      refuse(*written, "distributed_type", name + ": " + kind->refusal);
      return nullptr;
    }
    return &*kind;
  }

  bool is_kind(const std::string& name) const { return kind_ && name == kind_->name; }

  void map_processes() {
    const Value* processes = root_.find("num_processes");
    if (processes && processes->text() == "-1") {
      note(*processes, "num_processes",
           "-1 leaves it to the command line: num_processes=4, or to what starts trainrun");
    } else if (processes) {
      copy("num_processes", *processes, "num_processes");
    }
    const Value* machines = root_.find("num_machines");
    const bool several = machines && parse_integer(machines->text()).value_or(1) > 1;
    for (const char* key : {"main_process_ip", "main_process_port"}) {
      const Value* value = root_.find(key);
      if (!value) continue;
      if (several) {
        copy(key, *value, key);
      } else {
        meaningless_.emplace_back(key);  // on one machine the processes find each other
      }
    }
    const Value* backend = root_.find("rdzv_backend");
    if (is_on(backend) && backend->text() != "static" && backend->text() != "c10d") {
      refuse(*backend, "rdzv_backend",
             "processes meet at main_process_ip (static, c10d); for '" + backend->text() +
                 "' start trainrun under torchrun --no-python --rdzv-backend=" + backend->text());
    }
    const Value* affinity = root_.find("enable_cpu_affinity");
    if (is_on(affinity)) set("distributed.pin_cores", "true", *affinity);
    const Value* mpirun = root_.find("mpirun_config");
    if (is_on(mpirun)) {
      note(*mpirun, "mpirun_config",
           "trainrun does not start mpirun; `trainrun launch --emit mpirun` prints the command that starts trainrun");
    }
  }

  bool uses_cpu() const { return is_kind("MULTI_CPU") || is_on(root_.find("use_cpu")); }

  void map_device() {
    if (!kind_) return;
    const Value* written = root_.find("distributed_type");
    if (!is_kind("DEEPSPEED")) set_type(is_kind("MULTI_GPU") && uses_cpu() ? "MULTI_CPU" : kind_->recipe, *written);
    const Value* use_cpu = root_.find("use_cpu");
    if (uses_cpu()) return set("device", "cpu", is_on(use_cpu) ? *use_cpu : *written);
    const Value* ids = root_.find("gpu_ids");
    if (!ids || upper(ids->text()) == "ALL") return;
    if (is_kind("NO") && parse_integer(ids->text())) return set("device", "cuda:" + ids->text(), *ids);
    refuse(*ids, "gpu_ids",
           "write all, and choose the GPUs where trainrun starts: CUDA_VISIBLE_DEVICES=" + ids->text());
  }

  void set_type(const std::string& type, const Value& written) {
    if (type == "MULTI_CPU" && !is_kind("MULTI_CPU"))
      note(written, "distributed_type", "MULTI_CPU, since use_cpu is true");
    set("distributed_type", in_yaml(type), written);
  }

  void map_dynamo() {
    const Section dynamo = section("dynamo_config", "dynamo_");
    const Value* backend = dynamo.value ? dynamo.find("dynamo_backend") : root_.find("dynamo_backend");
    if (!is_on(backend)) return;
    refuse(*backend, joined_path(dynamo.path, "dynamo_backend"),
           "torch.compile is Python's; layers run as they are here; write 'NO'");
  }

  void map_precision() {
    const Value* precision = root_.find("mixed_precision");
    const Value* old = root_.find("fp16");
    if (!precision && is_on(old)) return set("mixed_precision", "fp16", *old);
    if (!precision) return;
    const std::string name = is_off(*precision) ? "NO" : upper(precision->text());
    if (name == "FP8") {
      refuse(*precision, "mixed_precision",
             "fp8 needs Transformer Engine, MS-AMP or torchao, all Python's; write bf16");
    } else if (name == "NO" || name == "BF16" || name == "FP16") {
      set("mixed_precision", name == "NO" ? "'no'" : name == "BF16" ? "bf16" : "fp16", *precision);
    } else {
      refuse(*precision, "mixed_precision",
             "unknown precision '" + precision->text() + "'" + suggestion(precision->text(), {"no", "bf16", "fp16"}));
    }
  }

  /// Its `value` is null where it is not there, empty, or no mapping, which is a problem.
  Section section(const std::string& key, const std::string& prefix) {
    const Value* value = root_.find(key);
    if (!value || is_off(*value)) return {nullptr, "", prefix};
    if (value->is_map()) return {value, key, prefix};
    refuse(*value, key, "expected a mapping, found " + value->describe());
    return {nullptr, "", prefix};
  }

  void map_sections() {
    const Section fsdp = section("fsdp_config", "fsdp_");
    const Section deepspeed = section("deepspeed_config", "");
    const Section parallelism = section("parallelism_config", "parallelism_config_");
    if (is_kind("FSDP")) map_fsdp(fsdp);
    if (is_kind("DEEPSPEED")) map_deepspeed(deepspeed);
    if (is_kind("FSDP") && parallelism.value) map_parallelism(parallelism);
    if (!kind_) return;  // what the sections are for is not known
    not_read(fsdp, "FSDP");
    not_read(deepspeed, "DEEPSPEED");
    not_read(parallelism, "FSDP");
    not_read(section("megatron_lm_config", ""), "MEGATRON_LM");
    const Section fp8 = section("fp8_config", "");
    const Value* precision = root_.find("mixed_precision");
    if (fp8.value && !(precision && upper(precision->text()) == "FP8")) {
      note(*fp8.value, fp8.path, "is for mixed_precision: fp8; not read");
    }
  }

  void not_read(const Section& section, const std::string& kind) {
    if (section.value && !is_kind(kind))
      note(*section.value, section.path, "is for distributed_type: " + kind + "; not read");
  }

  // --- fsdp_config ---

  void map_fsdp(const Section& fsdp) {
    if (fsdp.value) walk(fsdp, fsdp_keys());
    map_strategy(fsdp);
    if (const Value* offload = fsdp.find("fsdp_offload_params")) {
      offload_optimizer(*offload, is_on(offload));
      if (is_on(offload)) {
        note(*offload, "fsdp_config.fsdp_offload_params",
             "sharding.cpu_offload: optimizer state is kept in the machine's memory; parameters and gradients stay");
      }
    }
    if (const Value* backward = fsdp.find("fsdp_backward_prefetch")) {
      const std::string name = is_off(*backward) ? "NO_PREFETCH" : named(*backward, fsdp_prefetches());
      if (std::find(fsdp_prefetches().begin(), fsdp_prefetches().end(), name) == fsdp_prefetches().end()) {
        refuse(*backward, "fsdp_config.fsdp_backward_prefetch", "unknown policy" + suggestion(name, fsdp_prefetches()));
      }
      const bool forward = is_on(fsdp.find("fsdp_forward_prefetch"));
      set("sharding.prefetch", name != "NO_PREFETCH" || forward ? "true" : "false", *backward);
    } else if (is_on(fsdp.find("fsdp_forward_prefetch"))) {
      set("sharding.prefetch", "true", *fsdp.find("fsdp_forward_prefetch"));
    }
    note_wrapping(fsdp);
  }

  /// Version 1 has names or their numbers, version 2 asks whether to reshard; new files of version 1 give a name there.
  void map_strategy(const Section& fsdp) {
    std::string chosen;
    const Value* from = root_.find("distributed_type");
    for (const char* key : {"fsdp_sharding_strategy", "fsdp_reshard_after_forward"}) {
      const Value* value = fsdp.find(key);
      if (!value) continue;
      const std::string path = "fsdp_config." + std::string(key);
      std::string name = named(*value, fsdp_strategies());
      if (name == "TRUE") name = "FULL_SHARD";
      if (name == "FALSE") name = "SHARD_GRAD_OP";
      if (name.starts_with("HYBRID_SHARD")) {
        refuse(*value, path, name + " shards within each machine and copies between them; write FULL_SHARD, over all");
      } else if (std::find(fsdp_strategies().begin(), fsdp_strategies().end(), name) == fsdp_strategies().end()) {
        refuse(*value, path, "unknown strategy '" + value->text() + "'" + suggestion(name, fsdp_strategies()));
      } else if (!chosen.empty() && chosen != name) {
        refuse(*value, path, "says " + name + ", fsdp_sharding_strategy " + chosen + "; leave one out");
      }
      chosen = name;
      from = value;
    }
    set("sharding.strategy", in_yaml(chosen.empty() ? "FULL_SHARD" : chosen), *from);
    set("sharding.zero_stage", "null", *from);
  }

  void note_wrapping(const Section& fsdp) {
    const Value* policy = fsdp.find("fsdp_auto_wrap_policy");
    if (!policy) return;
    const std::vector<std::string> known = {"TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"};
    const std::string name = is_off(*policy) ? "NO_WRAP" : upper(policy->text());
    const std::string path = "fsdp_config.fsdp_auto_wrap_policy";
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      return refuse(*policy, path, "unknown policy '" + policy->text() + "'" + suggestion(name, known));
    }
    const Value* classes = fsdp.find("fsdp_transformer_layer_cls_to_wrap");
    const std::string what = name == "TRANSFORMER_BASED_WRAP" && is_on(classes)
                                 ? "Python's classes (" + classes->text() + ") are not known here"
                                 : name + " is not known here";
    note(*policy, path,
         what + ": each of the model's own layers is gathered and sharded as one; sharding.wrap names others");
  }

  void offload_optimizer(const Value& from, bool on) { set("sharding.cpu_offload", on ? "true" : "false", from); }

  void map_parallelism(const Section& parallelism) {
    walk(parallelism, parallelism_keys());
    const std::vector<std::pair<std::string, std::string>> sizes = {
        {"dp_replicate_size", "parameters are sharded over all processes, not within groups"},
        {"tp_size", "layers are not cut into tensor-parallel parts"},
        {"cp_size", "sequences are not cut into parts"},
        {"sp_size", "sequences are not cut into parts"}};
    for (const auto& [key, reason] : sizes) {
      const Value* size = parallelism.find(parallelism.prefix + key);
      if (size && size->text() != "1")
        refuse(*size, parallelism.path + "." + parallelism.prefix + key, reason + "; write 1");
    }
  }

  // --- deepspeed_config ---

  /// What both the mapping and a DeepSpeed file say; null where they do not, or say "auto".
  struct DeepSpeed {
    const Value* stage = nullptr;
    const Value* accumulation = nullptr;
    const Value* clipping = nullptr;
    const Value* optimizer_device = nullptr;
    const Value* parameter_device = nullptr;
    std::string path;  // before their names
  };

  static const Value* unless_auto(const Value* value) {
    return value && !value->is_null() && value->text() != "auto" ? value : nullptr;
  }

  void map_deepspeed(const Section& section) {
    if (section.value) walk(section, deepspeed_keys());
    const Value* file = section.find("deepspeed_config_file");
    if (is_on(file)) return map_deepspeed_file(section, *file);
    const auto find = [&](const char* key) { return unless_auto(section.find(key)); };
    apply({find("zero_stage"), find("gradient_accumulation_steps"), find("gradient_clipping"),
           find("offload_optimizer_device"), find("offload_param_device"), "deepspeed_config"});
  }

  void apply(const DeepSpeed& said) {
    const Value& type = *root_.find("distributed_type");
    const auto stage = said.stage ? parse_integer(said.stage->text()) : std::optional<int64_t>(2);
    if (!stage || *stage < 0 || *stage > 3) {
      refuse(*said.stage, said.path + ".zero_stage", "ZeRO has stages 0 to 3, found " + said.stage->text());
    } else if (*stage == 0) {
      set_type(uses_cpu() ? "MULTI_CPU" : "MULTI_GPU", type);
    } else {
      set_type("FSDP", type);
      set("sharding.zero_stage", std::to_string(*stage), said.stage ? *said.stage : type);
    }
    if (said.accumulation) copy("training.gradient_accumulation_steps", *said.accumulation, said.path);
    if (said.clipping && parse_number(said.clipping->text()) == 0.0) {
      set("training.max_grad_norm", "null", *said.clipping);
    } else if (said.clipping) {
      copy("training.max_grad_norm", *said.clipping, said.path);
    }
    if (const Value* device = said.optimizer_device) {
      if (is_memory(*device, said.path + ".offload_optimizer_device")) offload_optimizer(*device, is_on(device));
    }
    if (const Value* device = said.parameter_device) {
      if (is_memory(*device, said.path + ".offload_param_device") && is_on(device)) {
        note(*device, said.path + ".offload_param_device",
             "parameters stay on their device; sharding.cpu_offload moves optimizer state alone");
      }
    }
  }

  bool is_memory(const Value& device, const std::string& path) {
    if (is_off(device) || upper(device.text()) == "CPU") return true;
    refuse(device, path, "nothing is offloaded to disks or '" + device.text() + "'; write cpu or none");
    return false;
  }

  void map_deepspeed_file(const Section& section, const Value& name) {
    for (const char* key : {"zero_stage", "gradient_accumulation_steps", "gradient_clipping",
                            "offload_optimizer_device", "offload_param_device"}) {
      if (const Value* twice = section.find(key)) {
        refuse(*twice, joined_path(section.path, key), "the DeepSpeed file says it; leave it out here");
      }
    }
    const std::string path = joined_path(section.path, "deepspeed_config_file");
    const auto text = read_(name.text());
    if (!text) return refuse(name, path, "cannot read " + name.text());
    file_ = parse_yaml(*text, std::make_shared<const std::string>(name.text()), config_.problems);
    if (!file_.is_map()) {
      if (!file_.is_null()) refuse(file_, "", "a DeepSpeed file is a mapping, found " + file_.describe());
      return;
    }
    if (!file_.find("zero_optimization")) return refuse(file_, "zero_optimization", "is not there; write {stage: 0}");
    std::vector<std::string> others;
    for (const Value::Entry& entry : file_.entries()) {
      const auto row = std::find_if(deepspeed_file_keys().begin(), deepspeed_file_keys().end(),
                                    [&](const AccelerateKey& known) { return entry.key == known.key; });
      if (row == deepspeed_file_keys().end()) {
        others.push_back(entry.key);
      } else {
        take(*row, entry.value, entry.key);
      }
    }
    if (!others.empty())
      note(file_, "", "not read, since the recipe says it or it has no meaning here: " + join(others));
    apply({in_file({"zero_optimization", "stage"}), in_file({"gradient_accumulation_steps"}),
           in_file({"gradient_clipping"}), in_file({"zero_optimization", "offload_optimizer", "device"}),
           in_file({"zero_optimization", "offload_param", "device"}), "zero_optimization"});
    if (const Value* batch = in_file({"train_micro_batch_size_per_gpu"})) {
      copy("dataloader.batch_size", *batch, "train_micro_batch_size_per_gpu");
    }
    map_file_precision();
  }

  const Value* in_file(const std::vector<std::string>& keys) const {
    const Value* value = &file_;
    for (const std::string& key : keys) value = value ? value->find(key) : nullptr;
    return unless_auto(value);
  }

  void map_file_precision() {
    const Value* half = in_file({"fp16", "enabled"});
    const Value* brain = in_file({"bf16", "enabled"});
    if (is_on(half) && is_on(brain)) return refuse(*brain, "bf16.enabled", "fp16 is enabled as well; choose one");
    if (is_on(brain)) set("mixed_precision", "bf16", *brain);
    if (!is_on(half)) return;
    set("mixed_precision", "fp16", *half);
    const Value* fixed = in_file({"fp16", "loss_scale"});
    if (fixed && parse_number(fixed->text()) != 0.0) {
      refuse(*fixed, "fp16.loss_scale", "the loss scale adapts itself (grad_scaler); write 0");
    }
    const Value* power = in_file({"fp16", "initial_scale_power"});
    if (const auto number = power ? parse_number(power->text()) : std::nullopt) {
      std::ostringstream scale;
      scale << std::exp2(*number);
      set("grad_scaler.init_scale", scale.str(), *power);
    }
    if (const Value* window = in_file({"fp16", "loss_scale_window"})) {
      copy("grad_scaler.growth_interval", *window, "fp16.loss_scale_window");
    }
  }

  Section root_;
  const ReadText& read_;
  const AccelerateType* kind_ = nullptr;
  Value file_;  // DeepSpeed's
  std::vector<std::string> meaningless_;
  AccelerateConfig config_;
};

std::optional<std::string> text_of(const std::string& path) {
  try {
    return read_file(path, kMaxRecipeBytes);
  } catch (const Error&) {
    return std::nullopt;
  }
}

Problem fault_of_file(const std::string& path, const std::string& message) {
  Problem problem;
  problem.place = {std::make_shared<const std::string>(path), 1, 1};
  problem.message = message;
  return problem;
}

/// Of which of `settings`, the first of the overrides, a fault speaks; nothing where it is not of them.
std::optional<size_t> setting_of(const Problem& problem, const std::vector<AccelerateConfig::Setting>& settings) {
  if (!problem.place.file || *problem.place.file != "command line") return std::nullopt;
  const auto number = static_cast<size_t>(problem.place.line);
  return number <= settings.size() ? std::optional(number - 1) : std::nullopt;
}

}  // namespace

std::vector<std::string> AccelerateConfig::overrides() const {
  std::vector<std::string> texts;
  for (const Setting& setting : settings) texts.push_back(setting.key + "=" + setting.value);
  return texts;
}

AccelerateConfig map_accelerate_config(const std::string& text, const std::string& path, const ReadText& read) {
  AccelerateConfig config;
  const Value root = parse_yaml(text, std::make_shared<const std::string>(path), config.problems);
  if (config.problems.empty() && root.is_map()) config = Mapper(root, read).map();
  if (config.problems.empty() && !root.is_map()) {
    config.problems = {fault_of_file(path, "a configuration of Accelerate is a mapping (key: value)")};
  }
  sort_problems(config.problems);
  return config;
}

AccelerateConfig read_accelerate_config(const std::string& path) {
  const auto read = [&](const std::string& other) {
    const auto from_here = text_of(other);
    return from_here ? from_here : text_of((std::filesystem::path(path).parent_path() / other).string());
  };
  try {
    return map_accelerate_config(read_file(path, kMaxRecipeBytes), path, read);
  } catch (const Error& error) {
    AccelerateConfig config;
    config.problems = {fault_of_file(path, error.what())};
    return config;
  }
}

LoadedRecipe load_recipe(const std::string& path, const AccelerateConfig& config,
                         const std::vector<std::string>& overrides, Catalog& catalog) {
  std::vector<std::string> all = config.overrides();
  all.insert(all.end(), overrides.begin(), overrides.end());
  std::vector<Problem> problems = config.problems;
  try {
    LoadedRecipe loaded = load_recipe(path, all, catalog);
    if (problems.empty()) return loaded;
  } catch (const RecipeError& error) {
    for (Problem problem : error.problems()) {
      if (const auto setting = setting_of(problem, config.settings)) {
        if (!config.problems.empty()) continue;  // what is refused is not there for what depends on it
        problem.place = config.settings[*setting].place;
      } else if (problem.place.file && *problem.place.file == "command line") {
        problem.place.line -= static_cast<int>(config.settings.size());
      }
      problems.push_back(problem);
    }
  }
  sort_problems(problems);
  throw RecipeError(problems);
}

}  // namespace trainrun
