#include "runner/interop/accelerate_config.h"

#include <algorithm>
#include <filesystem>
#include <memory>

#include "registry/formats/files/file_io.h"
#include "runner/base/limits.h"
#include "runner/interop/accelerate_sharding.h"
#include "runner/recipe/yaml.h"

namespace trainrun {
namespace accelerate {
namespace {

/// Turns one file into settings, notes and problems.
class Mapper {
 public:
  Mapper(const Value& root, const ReadText& read) : root_{&root, "", ""}, read_(read) {}

  AccelerateConfig map() {
    if (is_amazon()) return draft_.finish(*root_.value);
    draft_.walk(root_, top_keys());
    kind_ = find_kind();
    map_processes();
    map_sections();
    map_device();
    map_dynamo();
    map_precision();
    return draft_.finish(*root_.value);
  }

 private:
  bool is_amazon() {
    const Value* environment = root_.find("compute_environment");
    if (!environment || environment->text() == "LOCAL_MACHINE") return false;
    const std::string advice = "; start trainrun in the container that SageMaker runs, without this file";
    draft_.refuse(*environment, "compute_environment",
                  upper(environment->text()) == "AMAZON_SAGEMAKER"
                      ? "a SageMaker job is submitted with Amazon's own SDK" + advice
                      : "unknown environment '" + environment->text() + "'; known: LOCAL_MACHINE, AMAZON_SAGEMAKER");
    return true;
  }

  /// Null where there is none, or none that can be had.
  const AccelerateType* find_kind() {
    const Value* written = root_.find("distributed_type");
    if (!written) {
      draft_.refuse(*root_.value, "distributed_type",
                    "is missing; write 'NO' for one process, MULTI_CPU, MULTI_GPU or FSDP");
      return nullptr;
    }
    const std::string name = is_off(*written) ? "NO" : upper(written->text());
    const auto kind = std::find_if(accelerate_types().begin(), accelerate_types().end(),
                                   [&](const AccelerateType& known) { return name == known.name; });
    if (kind == accelerate_types().end()) {
      std::vector<std::string> names;
      for (const AccelerateType& known : accelerate_types()) names.emplace_back(known.name);
      draft_.refuse(*written, "distributed_type", "unknown type '" + written->text() + "'" + suggestion(name, names));
      return nullptr;
    }
    if (*kind->refusal) {
      draft_.refuse(*written, "distributed_type", name + ": " + kind->refusal);
      return nullptr;
    }
    return &*kind;
  }

  bool is_kind(const std::string& name) const { return kind_ && name == kind_->name; }

  void map_processes() {
    const Value* processes = root_.find("num_processes");
    if (processes && processes->text() == "-1") {
      draft_.note(*processes, "num_processes", "-1 leaves it to the command line (num_processes=4) or to the launcher");
    } else if (processes) {
      draft_.copy("num_processes", *processes, "num_processes");
    }
    const Value* machines = root_.find("num_machines");
    const bool several = machines && parse_integer(machines->text()).value_or(1) > 1;
    for (const char* key : {"main_process_ip", "main_process_port"}) {
      const Value* value = root_.find(key);
      if (!value) continue;
      if (several) {
        draft_.copy(key, *value, key);
      } else {
        draft_.add_meaningless(key);  // on one machine the processes find each other
      }
    }
    const Value* backend = root_.find("rdzv_backend");
    if (is_on(backend) && backend->text() != "static" && backend->text() != "c10d") {
      draft_.refuse(*backend, "rdzv_backend",
                    "processes meet at main_process_ip (static, c10d); for '" + backend->text() +
                        "' start trainrun under torchrun --no-python --rdzv-backend=" + backend->text());
    }
    const Value* affinity = root_.find("enable_cpu_affinity");
    if (is_on(affinity)) draft_.set("distributed.pin_cores", "true", *affinity);
    const Section mpirun = section("mpirun_config", "mpirun_");
    if (mpirun.value) {
      draft_.walk(mpirun, mpirun_keys());
      draft_.note(
          *mpirun.value, "mpirun_config",
          "trainrun does not start mpirun; `trainrun launch --emit mpirun` prints the command that starts trainrun");
    }
  }

  bool uses_cpu() const { return is_kind("MULTI_CPU") || is_on(root_.find("use_cpu")); }

  void map_device() {
    if (!kind_) return;
    const Value* written = root_.find("distributed_type");
    const bool whole = is_kind("MULTI_GPU") || (is_kind("DEEPSPEED") && stage_ == 0);  // on each rank
    set_type(whole ? (uses_cpu() ? "MULTI_CPU" : "MULTI_GPU") : kind_->recipe, *written);
    const Value* use_cpu = root_.find("use_cpu");
    if (uses_cpu()) return draft_.set("device", "cpu", is_on(use_cpu) ? *use_cpu : *written);
    const Value* ids = root_.find("gpu_ids");
    if (!ids || upper(ids->text()) == "ALL") return;
    if (is_kind("NO") && parse_integer(ids->text())) return draft_.set("device", "cuda:" + ids->text(), *ids);
    draft_.refuse(*ids, "gpu_ids",
                  "write all, and choose the GPUs where trainrun starts: CUDA_VISIBLE_DEVICES=" + ids->text());
  }

  void set_type(const std::string& type, const Value& written) {
    if (type == "MULTI_CPU" && !is_kind("MULTI_CPU"))
      draft_.note(written, "distributed_type", "MULTI_CPU, since use_cpu is true");
    draft_.set("distributed_type", in_yaml(type), written);
  }

  void map_dynamo() {
    const Section dynamo = section("dynamo_config", "dynamo_");
    if (dynamo.value) draft_.walk(dynamo, dynamo_keys());
    const Value* backend = dynamo.value ? dynamo.find("dynamo_backend") : root_.find("dynamo_backend");
    if (!is_on(backend)) return;
    draft_.refuse(*backend, joined_path(dynamo.path, "dynamo_backend"),
                  "torch.compile needs Python; layers run as they are here; write 'NO'");
  }

  void map_precision() {
    const Value* precision = root_.find("mixed_precision");
    const Value* old = root_.find("fp16");
    if (!precision && is_on(old)) return draft_.set("mixed_precision", "fp16", *old);
    if (!precision) return;
    const std::string name = is_off(*precision) ? "NO" : upper(precision->text());
    if (name == "FP8") {
      draft_.refuse(*precision, "mixed_precision",
                    "fp8 needs Transformer Engine, MS-AMP or torchao, which need Python; write bf16");
    } else if (draft_.has("mixed_precision")) {
      draft_.refuse(*precision, "mixed_precision",
                    "the DeepSpeed file sets it; write \"auto\" there, or leave it out here");
    } else if (name == "NO" || name == "BF16" || name == "FP16") {
      draft_.set("mixed_precision", name == "NO" ? "'no'" : name == "BF16" ? "bf16" : "fp16", *precision);
    } else {
      draft_.refuse(
          *precision, "mixed_precision",
          "unknown precision '" + precision->text() + "'" + suggestion(precision->text(), {"no", "bf16", "fp16"}));
    }
  }

  /// Its `value` is null where it is not there, empty, or no mapping, which is a problem.
  Section section(const std::string& key, const std::string& prefix) {
    const Value* value = root_.find(key);
    if (!value || is_off(*value)) return {nullptr, "", prefix};
    if (value->is_map()) return {value, key, prefix};
    draft_.refuse(*value, key, "expected a mapping, found " + value->describe());
    return {nullptr, "", prefix};
  }

  void map_sections() {
    const Section fsdp = section("fsdp_config", "fsdp_");
    const Section deepspeed = section("deepspeed_config", "");
    const Section parallelism = section("parallelism_config", "parallelism_config_");
    const Value* type = root_.find("distributed_type");
    if (is_kind("FSDP")) map_fsdp(draft_, fsdp, *type);
    if (is_kind("DEEPSPEED")) stage_ = map_deepspeed(draft_, deepspeed, *type, says_half(), read_);
    if (kind_ && parallelism.value) map_parallelism(draft_, parallelism, is_kind("FSDP"), num_processes());
    if (!kind_) return;  // what the sections are for is not known
    not_read(fsdp, "FSDP");
    not_read(deepspeed, "DEEPSPEED");
    not_read(section("megatron_lm_config", ""), "MEGATRON_LM");
    const Section fp8 = section("fp8_config", "");
    const Value* precision = root_.find("mixed_precision");
    if (fp8.value && !(precision && upper(precision->text()) == "FP8")) {
      draft_.note(*fp8.value, fp8.path, "is for mixed_precision: fp8; not read: " + keys_of(fp8));
    }
  }

  void not_read(const Section& section, const std::string& kind) {
    if (section.value && !is_kind(kind))
      draft_.note(*section.value, section.path, "is for distributed_type: " + kind + "; not read: " + keys_of(section));
  }
  static std::string keys_of(const Section& section) { return join(switched_on(*section.value, section.path)); }

  bool says_half() const {
    const Value* precision = root_.find("mixed_precision");
    return precision ? upper(precision->text()) == "FP16" : is_on(root_.find("fp16"));
  }
  std::optional<int64_t> num_processes() const {
    const Value* processes = root_.find("num_processes");
    const auto number = processes ? parse_integer(processes->text()) : std::nullopt;
    return number && *number > 0 ? number : std::nullopt;
  }

  Section root_;
  const ReadText& read_;
  const AccelerateType* kind_ = nullptr;
  std::optional<int64_t> stage_;  // ZeRO's
  Draft draft_;
};

}  // namespace
}  // namespace accelerate

namespace {

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
  if (config.problems.empty() && root.is_map()) config = accelerate::Mapper(root, read).map();
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
                         const std::vector<std::string>& overrides, Catalog& catalog, InitialWeights weights) {
  std::vector<std::string> all = config.overrides();
  all.insert(all.end(), overrides.begin(), overrides.end());
  std::vector<Problem> problems = config.problems;
  try {
    LoadedRecipe loaded = load_recipe(path, all, catalog, weights);
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
