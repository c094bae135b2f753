#include "runner/accelerate_sharding.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <memory>
#include <sstream>

#include "runner/yaml.h"

namespace trainrun::accelerate {
namespace {

/// Upper case; the name for a number that counts names from 1.
std::string named(const Value& value, const std::vector<std::string>& names) {
  const auto number = parse_integer(value.text());
  const bool counts = number && *number >= 1 && *number <= static_cast<int64_t>(names.size());
  return counts ? names[static_cast<size_t>(*number) - 1] : upper(value.text());
}

void offload_optimizer(Draft& draft, const Value& from) {
  draft.set("sharding.cpu_offload", is_off(from) ? "false" : "true", from);
}

/// Version 1 has names or their numbers, version 2 asks whether to reshard; new files of version 1 give a name there.
void map_strategy(Draft& draft, const Section& fsdp, const Value& type) {
  std::string chosen;
  const Value* from = &type;
  for (const char* key : {"fsdp_sharding_strategy", "fsdp_reshard_after_forward"}) {
    const Value* value = fsdp.find(key);
    if (!value) continue;
    const std::string path = "fsdp_config." + std::string(key);
    std::string name = named(*value, fsdp_strategies());
    if (name == "TRUE") name = "FULL_SHARD";
    if (name == "FALSE") name = "SHARD_GRAD_OP";
    if (name.starts_with("HYBRID_SHARD")) {
      draft.refuse(*value, path,
                   name + " shards within each machine and copies between them; write FULL_SHARD, over all");
    } else if (std::find(fsdp_strategies().begin(), fsdp_strategies().end(), name) == fsdp_strategies().end()) {
      draft.refuse(*value, path, "unknown strategy '" + value->text() + "'" + suggestion(name, fsdp_strategies()));
    } else if (!chosen.empty() && chosen != name) {
      draft.refuse(*value, path, "says " + name + ", fsdp_sharding_strategy " + chosen + "; leave one out");
    }
    chosen = name;
    from = value;
  }
  draft.set("sharding.strategy", in_yaml(chosen.empty() ? "FULL_SHARD" : chosen), *from);
  draft.set("sharding.zero_stage", "null", *from);
}

void note_wrapping(Draft& draft, const Section& fsdp) {
  const Value* policy = fsdp.find("fsdp_auto_wrap_policy");
  if (!policy) return;
  const std::vector<std::string> known = {"TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"};
  const std::string name = is_off(*policy) ? "NO_WRAP" : upper(policy->text());
  const std::string path = "fsdp_config.fsdp_auto_wrap_policy";
  if (std::find(known.begin(), known.end(), name) == known.end()) {
    return draft.refuse(*policy, path, "unknown policy '" + policy->text() + "'" + suggestion(name, known));
  }
  const Value* classes = fsdp.find("fsdp_transformer_layer_cls_to_wrap");
  const std::string what = name == "TRANSFORMER_BASED_WRAP" && is_on(classes)
                               ? "Python's classes (" + classes->text() + ") are not known here"
                               : name + " is not known here";
  draft.note(*policy, path,
             what + ": each of the model's own layers is gathered and sharded as one; sharding.wrap names others");
}

/// What both deepspeed_config and a DeepSpeed file say; null where they do not, or say "auto".
struct DeepSpeed {
  const Value* stage = nullptr;
  const Value* accumulation = nullptr;
  const Value* clipping = nullptr;
  const Value* optimizer_device = nullptr;
  const Value* parameter_device = nullptr;
  std::string path;  // before their names
};

const Value* unless_auto(const Value* value) {
  return value && !value->is_null() && value->text() != "auto" ? value : nullptr;
}

bool is_memory(Draft& draft, const Value& device, const std::string& path) {
  if (is_off(device) || upper(device.text()) == "CPU") return true;
  draft.refuse(device, path, "nothing is offloaded to disks or '" + device.text() + "'; write cpu or none");
  return false;
}

/// Returns the stage.
std::optional<int64_t> apply(Draft& draft, const DeepSpeed& said, const Value& type) {
  const auto stage = said.stage ? parse_integer(said.stage->text()) : std::optional<int64_t>(2);
  const bool is_stage = stage && *stage >= 0 && *stage <= 3;
  if (!is_stage) {
    draft.refuse(*said.stage, said.path + ".zero_stage", "ZeRO has stages 0 to 3, found " + said.stage->text());
  } else if (*stage > 0) {
    draft.set("sharding.zero_stage", std::to_string(*stage), said.stage ? *said.stage : type);
  }
  if (said.accumulation) draft.copy("training.gradient_accumulation_steps", *said.accumulation, said.path);
  if (said.clipping && parse_number(said.clipping->text()) == 0.0) {
    draft.set("training.max_grad_norm", "null", *said.clipping);
  } else if (said.clipping) {
    draft.copy("training.max_grad_norm", *said.clipping, said.path);
  }
  const Value* optimizer = said.optimizer_device;
  if (optimizer && is_memory(draft, *optimizer, said.path + ".offload_optimizer_device")) {
    offload_optimizer(draft, *optimizer);
  }
  const Value* parameters = said.parameter_device;
  if (is_on(parameters) && is_memory(draft, *parameters, said.path + ".offload_param_device")) {
    draft.note(*parameters, said.path + ".offload_param_device",
               "parameters stay on their device; sharding.cpu_offload moves optimizer state alone");
  }
  return is_stage ? stage : std::nullopt;
}

/// What is said under `keys`, one in the other.
const Value* in_file(const Value& file, const std::vector<std::string>& keys) {
  const Value* value = &file;
  for (const std::string& key : keys) value = value ? value->find(key) : nullptr;
  return unless_auto(value);
}

void map_file_precision(Draft& draft, const Value& file) {
  const Value* half = in_file(file, {"fp16", "enabled"});
  const Value* brain = in_file(file, {"bf16", "enabled"});
  if (is_on(half) && is_on(brain)) return draft.refuse(*brain, "bf16.enabled", "fp16 is enabled as well; choose one");
  if (is_on(brain)) draft.set("mixed_precision", "bf16", *brain);
  if (!is_on(half)) return;
  draft.set("mixed_precision", "fp16", *half);
  const Value* fixed = in_file(file, {"fp16", "loss_scale"});
  if (fixed && parse_number(fixed->text()) != 0.0) {
    draft.refuse(*fixed, "fp16.loss_scale", "the loss scale adapts itself (grad_scaler); write 0");
  }
  const Value* power = in_file(file, {"fp16", "initial_scale_power"});
  if (const auto number = power ? parse_number(power->text()) : std::nullopt) {
    std::ostringstream scale;
    scale << std::setprecision(17) << std::exp2(*number);
    draft.set("grad_scaler.init_scale", scale.str(), *power);
  }
  if (const Value* window = in_file(file, {"fp16", "loss_scale_window"})) {
    draft.copy("grad_scaler.growth_interval", *window, "fp16.loss_scale_window");
  }
}

void refuse_said_twice(Draft& draft, const Section& section) {
  for (const char* key : {"zero_stage", "gradient_accumulation_steps", "gradient_clipping", "offload_optimizer_device",
                          "offload_param_device"}) {
    const Value* twice = section.find(key);
    if (twice) draft.refuse(*twice, joined_path(section.path, key), "the DeepSpeed file says it; leave it out here");
  }
}

/// Null where it cannot be read, or is none: then there is a problem.
Value read_deepspeed_file(Draft& draft, const Value& name, const ReadText& read) {
  const auto text = read(name.text());
  if (!text) {
    draft.refuse(name, "deepspeed_config.deepspeed_config_file", "cannot read " + name.text());
    return {};
  }
  Value file = parse_yaml(*text, std::make_shared<const std::string>(name.text()), draft.problems());
  if (file.is_null() || (file.is_map() && file.find("zero_optimization"))) return file;
  if (file.is_map()) {
    draft.refuse(file, "zero_optimization", "is not there; write {stage: 0}");
  } else {
    draft.refuse(file, "", "a DeepSpeed file is a mapping, found " + file.describe());
  }
  return {};
}

void take_keys(Draft& draft, const Value& file) {
  const std::vector<AccelerateKey>& keys = deepspeed_file_keys();
  std::vector<std::string> others;
  for (const Value::Entry& entry : file.entries()) {
    const auto row =
        std::find_if(keys.begin(), keys.end(), [&](const AccelerateKey& known) { return entry.key == known.key; });
    if (row == keys.end()) {
      others.push_back(entry.key);
    } else {
      draft.take(*row, entry.value, entry.key);
    }
  }
  if (others.empty()) return;
  draft.note(file, "", "not read, since the recipe says it or it has no meaning here: " + join(others));
}

std::optional<int64_t> map_deepspeed_file(Draft& draft, const Value& file, const Value& type) {
  take_keys(draft, file);
  const auto stage =
      apply(draft,
            {in_file(file, {"zero_optimization", "stage"}), in_file(file, {"gradient_accumulation_steps"}),
             in_file(file, {"gradient_clipping"}), in_file(file, {"zero_optimization", "offload_optimizer", "device"}),
             in_file(file, {"zero_optimization", "offload_param", "device"}), "zero_optimization"},
            type);
  if (const Value* batch = in_file(file, {"train_micro_batch_size_per_gpu"})) {
    draft.copy("dataloader.batch_size", *batch, "train_micro_batch_size_per_gpu");
  }
  map_file_precision(draft, file);
  return stage;
}

}  // namespace

void map_fsdp(Draft& draft, const Section& fsdp, const Value& type) {
  if (fsdp.value) draft.walk(fsdp, fsdp_keys());
  map_strategy(draft, fsdp, type);
  if (const Value* offload = fsdp.find("fsdp_offload_params")) {
    offload_optimizer(draft, *offload);
    if (is_on(offload)) {
      draft.note(
          *offload, "fsdp_config.fsdp_offload_params",
          "sharding.cpu_offload: optimizer state is kept in the machine's memory; parameters and gradients stay");
    }
  }
  if (const Value* backward = fsdp.find("fsdp_backward_prefetch")) {
    const std::string name = is_off(*backward) ? "NO_PREFETCH" : named(*backward, fsdp_prefetches());
    if (std::find(fsdp_prefetches().begin(), fsdp_prefetches().end(), name) == fsdp_prefetches().end()) {
      draft.refuse(*backward, "fsdp_config.fsdp_backward_prefetch",
                   "unknown policy" + suggestion(name, fsdp_prefetches()));
    }
    const bool forward = is_on(fsdp.find("fsdp_forward_prefetch"));
    draft.set("sharding.prefetch", name != "NO_PREFETCH" || forward ? "true" : "false", *backward);
  } else if (is_on(fsdp.find("fsdp_forward_prefetch"))) {
    draft.set("sharding.prefetch", "true", *fsdp.find("fsdp_forward_prefetch"));
  }
  note_wrapping(draft, fsdp);
}

void map_parallelism(Draft& draft, const Section& parallelism) {
  draft.walk(parallelism, parallelism_keys());
  const std::vector<std::pair<std::string, std::string>> sizes = {
      {"dp_replicate_size", "parameters are sharded over all processes, not within groups"},
      {"tp_size", "layers are not cut into tensor-parallel parts"},
      {"cp_size", "sequences are not cut into parts"},
      {"sp_size", "sequences are not cut into parts"}};
  for (const auto& [key, reason] : sizes) {
    const Value* size = parallelism.find(parallelism.prefix + key);
    if (!size || size->text() == "1") continue;
    draft.refuse(*size, parallelism.path + "." + parallelism.prefix + key, reason + "; write 1");
  }
}

std::optional<int64_t> map_deepspeed(Draft& draft, const Section& deepspeed, const Value& type, const ReadText& read) {
  if (deepspeed.value) draft.walk(deepspeed, deepspeed_keys());
  const Value* name = deepspeed.find("deepspeed_config_file");
  if (is_on(name)) {
    refuse_said_twice(draft, deepspeed);
    const Value file = read_deepspeed_file(draft, *name, read);
    return file.is_null() ? std::nullopt : map_deepspeed_file(draft, file, type);
  }
  const auto find = [&](const char* key) { return unless_auto(deepspeed.find(key)); };
  return apply(draft,
               {find("zero_stage"), find("gradient_accumulation_steps"), find("gradient_clipping"),
                find("offload_optimizer_device"), find("offload_param_device"), "deepspeed_config"},
               type);
}

}  // namespace trainrun::accelerate
