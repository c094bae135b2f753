#include "runner/interop/accelerate_sharding.h"

#include <algorithm>

#include "runner/recipe/yaml.h"

namespace trainrun::accelerate {
namespace {

/// Upper case; the name for a number that counts names from 1.
std::string named(const Value& value, const std::vector<std::string>& names) {
  const auto number = parse_integer(value.text());
  const bool counts = number && *number >= 1 && *number <= static_cast<int64_t>(names.size());
  return counts ? names[static_cast<size_t>(*number) - 1] : upper(value.text());
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
  if (!policy) {
    if (is_on(fsdp.find("fsdp_transformer_layer_cls_to_wrap"))) {
      draft.add_meaningless("fsdp_config.fsdp_transformer_layer_cls_to_wrap");
    }
    return;
  }
  const std::vector<std::string> known = {"TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"};
  const std::string name = is_off(*policy) ? "NO_WRAP" : upper(policy->text());
  const std::string path = "fsdp_config.fsdp_auto_wrap_policy";
  if (std::find(known.begin(), known.end(), name) == known.end()) {
    return draft.refuse(*policy, path, "unknown policy '" + policy->text() + "'" + suggestion(name, known));
  }
  const Value* classes = fsdp.find("fsdp_transformer_layer_cls_to_wrap");
  if (name != "TRANSFORMER_BASED_WRAP" && is_on(classes)) {
    draft.add_meaningless("fsdp_config.fsdp_transformer_layer_cls_to_wrap");
  }
  const std::string what = name == "TRANSFORMER_BASED_WRAP" && is_on(classes)
                               ? "Python's classes (" + classes->text() + ") are not known here"
                               : name + " is not known here";
  draft.note(*policy, path,
             what + ": each of the model's own layers is gathered and sharded as one; sharding.wrap names others");
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

void map_parallelism(Draft& draft, const Section& parallelism, bool shards, std::optional<int64_t> num_processes) {
  draft.walk(parallelism, parallelism_keys());
  const std::vector<std::pair<std::string, std::string>> sizes = {
      {"dp_replicate_size", "parameters are sharded over all processes, not within groups"},
      {"tp_size", "layers are not cut into tensor-parallel parts"},
      {"cp_size", "sequences are not cut into parts"},
      {"sp_size", "sequences are not cut into parts"}};
  bool refused = false;
  for (const auto& [key, reason] : sizes) {
    const Value* size = parallelism.find(parallelism.prefix + key);
    if (!size || is_off(*size) || size->text() == "1") continue;
    draft.refuse(*size, parallelism.path + "." + parallelism.prefix + key, reason + "; write 1");
    refused = true;
  }
  const std::string key = parallelism.prefix + "dp_shard_size";
  const Value* shard = parallelism.find(key);
  if (!shard || is_off(*shard) || shard->text() == "-1" || refused) return;
  const auto size = parse_integer(shard->text());
  if (!shards && size != 1) {
    draft.refuse(*shard, parallelism.path + "." + key, "write distributed_type: FSDP, which shards parameters, or 1");
  } else if (shards && num_processes && size != num_processes) {
    draft.refuse(*shard, parallelism.path + "." + key,
                 "parameters are sharded over all processes; write " + std::to_string(*num_processes));
  }
}

}  // namespace trainrun::accelerate
