#include "runner/interop/accelerate_keys.h"

namespace trainrun {
namespace {

constexpr const char* kNoXla = "TPUs need XLA, which LibTorch does not have; write MULTI_GPU or MULTI_CPU";
constexpr const char* kNoDevice = "LibTorch's wheel supports only CPUs and NVIDIA GPUs; write MULTI_GPU or MULTI_CPU";

}  // namespace

const std::vector<AccelerateKey>& top_keys() {
  static const std::vector<AccelerateKey> keys = {
      {"compute_environment"},
      {"distributed_type"},
      {"mixed_precision"},
      {"fp16"},  // of old files, for mixed_precision: fp16
      {"num_processes"},
      {"num_machines", KeyFate::kCopied, "num_machines"},
      {"machine_rank", KeyFate::kCopied, "machine_rank"},
      {"main_process_ip"},
      {"main_process_port"},
      {"rdzv_backend"},
      {"use_cpu"},
      {"gpu_ids"},
      {"enable_cpu_affinity"},
      {"dynamo_backend"},  // of old files, for dynamo_config
      {"dynamo_config"},
      {"fsdp_config"},
      {"deepspeed_config"},
      {"megatron_lm_config"},
      {"parallelism_config"},
      {"fp8_config"},
      {"mpirun_config"},
      {"ipex_config", KeyFate::kMeaningless},  // LibTorch's own oneDNN kernels run
      {"main_training_function", KeyFate::kMeaningless},
      {"same_network", KeyFate::kMeaningless},
      {"debug", KeyFate::kMeaningless},
      {"downcast_bf16", KeyFate::kMeaningless},  // of TPUs, as all that follow
      {"tpu_name", KeyFate::kMeaningless},
      {"tpu_zone", KeyFate::kMeaningless},
      {"tpu_use_cluster", KeyFate::kMeaningless},
      {"tpu_use_sudo", KeyFate::kMeaningless},
      {"tpu_vm", KeyFate::kMeaningless},
      {"tpu_env", KeyFate::kMeaningless},
      {"command_file", KeyFate::kMeaningless},
      {"commands", KeyFate::kMeaningless},
      {"command", KeyFate::kMeaningless},
      {"use_mps_device", KeyFate::kRefused, "LibTorch's Linux wheel has no Apple GPUs; leave it out"},
  };
  return keys;
}

const std::vector<AccelerateKey>& fsdp_keys() {
  static const std::vector<AccelerateKey> keys = {
      {"fsdp_version", KeyFate::kMeaningless},
      {"fsdp_sharding_strategy"},
      {"fsdp_reshard_after_forward"},
      {"fsdp_offload_params"},
      {"fsdp_backward_prefetch"},
      {"fsdp_forward_prefetch"},
      {"fsdp_auto_wrap_policy"},
      {"fsdp_transformer_layer_cls_to_wrap"},
      {"fsdp_min_num_params", KeyFate::kMeaningless},             // of the policies, which a note speaks of
      {"fsdp_state_dict_type", KeyFate::kMeaningless},            // checkpoints are those of one process
      {"fsdp_use_orig_params", KeyFate::kMeaningless},            // always so
      {"fsdp_sync_module_states", KeyFate::kMeaningless},         // always so
      {"fsdp_cpu_ram_efficient_loading", KeyFate::kMeaningless},  // of Transformers' from_pretrained
      {"fsdp_activation_checkpointing", KeyFate::kRefused,
       "the recipe chooses the layers whose activations are computed again; set it to false, and write model: "
       "{checkpoint_activations: [PATTERN]} if memory is short"},
      {"fsdp_activation_checkpointing_offload", KeyFate::kRefused, "activations stay on their device; set it to false"},
      {"fsdp_ignored_modules", KeyFate::kRefused, "every layer's parameters are sharded; leave it out"},
  };
  return keys;
}

const std::vector<AccelerateKey>& deepspeed_keys() {
  static const std::vector<AccelerateKey> keys = {
      {"zero_stage"},
      {"gradient_accumulation_steps"},
      {"gradient_clipping"},
      {"offload_optimizer_device"},
      {"offload_param_device"},
      {"deepspeed_config_file"},
      {"offload_optimizer_nvme_path", KeyFate::kMeaningless},  // disks are refused as devices
      {"offload_param_nvme_path", KeyFate::kMeaningless},
      {"zero3_init_flag", KeyFate::kMeaningless},
      {"zero3_save_16bit_model", KeyFate::kMeaningless},  // checkpoints are float32
      {"deepspeed_moe_layer_cls_names", KeyFate::kMeaningless},
      {"deepspeed_multinode_launcher", KeyFate::kMeaningless},  // `trainrun launch --emit` has its own
      {"deepspeed_hostfile", KeyFate::kMeaningless},
      {"deepspeed_exclusion_filter", KeyFate::kMeaningless},
      {"deepspeed_inclusion_filter", KeyFate::kMeaningless},
  };
  return keys;
}

const std::vector<AccelerateKey>& dynamo_keys() {
  static const std::vector<AccelerateKey> keys = {
      {"dynamo_backend"},
      {"dynamo_mode", KeyFate::kMeaningless},  // of torch.compile, as all that follow
      {"dynamo_use_dynamic", KeyFate::kMeaningless},
      {"dynamo_use_fullgraph", KeyFate::kMeaningless},
      {"dynamo_use_regional_compilation", KeyFate::kMeaningless},
  };
  return keys;
}

const std::vector<AccelerateKey>& mpirun_keys() {
  static const std::vector<AccelerateKey> keys = {
      {"mpirun_hostfile", KeyFate::kMeaningless},
      {"mpirun_ccl", KeyFate::kMeaningless},
  };
  return keys;
}

const std::vector<AccelerateKey>& parallelism_keys() {
  static const std::vector<AccelerateKey> keys = {
      {"parallelism_config_dp_shard_size"},
      {"parallelism_config_dp_replicate_size"},
      {"parallelism_config_tp_size"},
      {"parallelism_config_cp_size"},
      {"parallelism_config_sp_size"},
      {"parallelism_config_cp_backend", KeyFate::kMeaningless},  // where the sizes are 1, as all that follow
      {"parallelism_config_cp_comm_strategy", KeyFate::kMeaningless},
      {"parallelism_config_sp_backend", KeyFate::kMeaningless},
      {"parallelism_config_sp_seq_length", KeyFate::kMeaningless},
      {"parallelism_config_sp_seq_length_is_variable", KeyFate::kMeaningless},
      {"parallelism_config_sp_attn_implementation", KeyFate::kMeaningless},
  };
  return keys;
}

const std::vector<AccelerateType>& accelerate_types() {
  static const std::vector<AccelerateType> types = {
      {"NO", "NO"},
      {"MULTI_CPU", "MULTI_CPU"},
      {"MULTI_GPU", "MULTI_GPU"},
      {"FSDP", "FSDP"},
      {"DEEPSPEED", "FSDP"},  // at ZeRO's stage 0, MULTI_GPU
      {"MEGATRON_LM", "", "a model is not cut into tensor-parallel or pipeline parts; write FSDP, which shards it"},
      {"XLA", "", kNoXla},
      {"TPU", "", kNoXla},
      {"MULTI_NPU", "", kNoDevice},
      {"MULTI_XPU", "", kNoDevice},
      {"MULTI_HPU", "", kNoDevice},
      {"MULTI_MLU", "", kNoDevice},
      {"MULTI_SDAA", "", kNoDevice},
      {"MULTI_MUSA", "", kNoDevice},
      {"MULTI_NEURON", "", kNoDevice},
  };
  return types;
}

const std::vector<std::string>& fsdp_strategies() {
  static const std::vector<std::string> names = {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD",
                                                 "HYBRID_SHARD_ZERO2"};
  return names;
}

const std::vector<std::string>& fsdp_prefetches() {
  static const std::vector<std::string> names = {"BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"};
  return names;
}

}  // namespace trainrun
