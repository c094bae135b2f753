#include <iterator>

#include "runner/interop/accelerate_keys.h"

// Source: DeepSpeed 0.18, runtime/config.py, runtime/zero/config.py and the page "DeepSpeed Configuration JSON".

namespace trainrun {
namespace {

constexpr KeyFate kNoted = KeyFate::kMeaningless;
constexpr KeyFate kRefused = KeyFate::kRefused;
constexpr KeyFate kSection = KeyFate::kSection;

constexpr const char* kKept =
    "the recipe chooses the layers whose activations are computed again; set it to false, and write model: "
    "{checkpoint_activations: [PATTERN]} if memory is short";
constexpr const char* kFull = "ranks communicate in float32; leave it out";
constexpr const char* kAllRanks = "parameters are sharded over all ranks, not within groups; leave it out";
constexpr const char* kWhole = "every rank computes whole layers and sequences; leave it out";
constexpr const char* kSchedule = "batches, layers and data are those of the recipe throughout; leave it out";

constexpr AccelerateKey kTop[] = {
    {"train_micro_batch_size_per_gpu"},
    {"train_batch_size", kNoted},  // follows from the one before, accumulation and ranks
    {"gradient_accumulation_steps"},
    {"gradient_clipping"},
    {"communication_data_type"},
    {"seq_parallel_communication_data_type", kNoted},
    {"dataloader_drop_last", KeyFate::kCopied, "dataloader.drop_last"},
    {"prescale_gradients", kNoted},  // the order of a sum's factors
    {"gradient_predivide_factor", kNoted},
    {"sparse_gradients", kNoted},  // the same sums
    {"zero_allow_untested_optimizer", kNoted},
    {"zero_force_ds_cpu_optimizer", kNoted},
    {"steps_per_print", kNoted},
    {"wall_clock_breakdown", kNoted},
    {"memory_breakdown", kNoted},
    {"dump_state", kNoted},
    {"disable_allgather", kNoted},
    {"graph_harvesting", kNoted},
    {"use_data_before_expert_parallel_", kNoted},
    {"use_node_local_storage", kNoted},
    {"flops_profiler", kNoted},
    {"tensorboard", kNoted},
    {"wandb", kNoted},
    {"csv_monitor", kNoted},
    {"comet", kNoted},
    {"comms_logger", kNoted},
    {"timers", kNoted},
    {"autotuning", kNoted},
    {"nebula", kNoted},
    {"aio", kNoted},
    {"checkpoint", kNoted},
    {"optimizer", kSection},
    {"optimizer.type"},
    {"optimizer.params", kNoted},
    {"optimizer.legacy_fusion", kNoted},
    {"scheduler", kNoted},
    {"data_types", kSection},
    {"data_types.grad_accum_dtype", kRefused, "gradients add up in float32; write fp32", "fp32"},
    {"amp", kRefused, "Apex's amp is not supported; write bf16: {enabled: true}"},
    {"torch_autocast", kRefused, "write bf16: {enabled: true}, which runs under autocast"},
    {"tensor_parallel", kSection},
    {"tensor_parallel.autotp_size", kRefused, kWhole, "1"},
    {"tensor_parallel.tp_size", kRefused, kWhole, "1"},
    {"tensor_parallel.tp", kRefused, kWhole},
    {"tensor_parallel.tensor_parallel", kRefused, kWhole},
    {"tensor_parallel.tp_grain_size", kNoted},
    {"tensor_parallel.tp_overlap_comm", kNoted},
    {"tensor_parallel.injection_policy_tuple", kRefused, kWhole},
    {"tensor_parallel.keep_module_on_host", kNoted},
    {"tensor_parallel.replace_with_kernel_inject", kNoted},
    {"sequence_parallel_size", kRefused, kWhole, "1"},
    {"pipeline", kRefused, "a model is not cut into stages; leave it out"},
    {"compression_training", kRefused, "there is no pruning or quantization in training; leave it out"},
    {"quantize_training", kRefused, "there is no pruning or quantization in training; leave it out"},
    {"weight_quantization", kRefused, "there is no pruning or quantization in training; leave it out"},
    {"sparse_attention", kRefused, "attention is dense; leave it out"},
    {"progressive_layer_drop", kRefused, kSchedule},
    {"curriculum_learning", kRefused, kSchedule},
    {"data_efficiency", kRefused, kSchedule},
    {"eigenvalue", kRefused, kSchedule},
    {"elasticity", kRefused,
     "the batch size does not follow the number of ranks; leave it out, and start trainrun under torchrun if ranks "
     "come and go"},
    {"hybrid_engine", kRefused, "it concerns inference during training; leave it out"},
    {"compile", kRefused, "torch.compile needs Python; leave it out"},
    {"activation_checkpointing", kSection},
    {"activation_checkpointing.partition_activations", kRefused, kKept},
    {"activation_checkpointing.cpu_checkpointing", kRefused, kKept},
    {"activation_checkpointing.contiguous_memory_optimization", kRefused, kKept},
    {"activation_checkpointing.number_checkpoints", kRefused, kKept},
    {"activation_checkpointing.synchronize_checkpoint_boundary", kNoted},
    {"activation_checkpointing.profile", kNoted},
};

constexpr AccelerateKey kPrecision[] = {
    {"fp16", kSection},
    {"fp16.enabled"},
    {"fp16.auto_cast", kNoted},
    {"fp16.loss_scale"},
    {"fp16.initial_scale_power"},
    {"fp16.loss_scale_window"},
    {"fp16.hysteresis"},
    {"fp16.consecutive_hysteresis"},
    {"fp16.min_loss_scale"},
    {"fp16.fp16_master_weights_and_grads", kRefused, "weights and gradients are float32; set it to false"},
    {"bf16", kSection},
    {"bf16.enabled"},
    {"bf16.immediate_grad_update", kNoted},
    {"bf16.check_grad_overflow", kNoted},
    {"bf16.bf16_master_weights_and_grads", kRefused, "weights and gradients are float32; set it to false"},
    {"bf16.bf16_optimizer_states", kRefused, "set it to false, and write optimizer.state_dtype: bf16 in the recipe"},
    {"bfloat16", kSection},  // of old files, for bf16
    {"bfloat16.enabled"},
    {"bfloat16.immediate_grad_update", kNoted},
};

constexpr AccelerateKey kZero[] = {
    {"zero_optimization", kSection},
    {"zero_optimization.stage"},
    {"zero_optimization.cpu_offload"},  // of old files, for offload_optimizer
    {"zero_optimization.cpu_offload_params"},
    {"zero_optimization.cpu_offload_use_pin_memory", kNoted},
    {"zero_optimization.offload_optimizer", kSection},
    {"zero_optimization.offload_optimizer.device"},
    {"zero_optimization.offload_optimizer.ratio", kRefused,
     "all of an optimizer's state is offloaded, or none; write 1", "1"},
    {"zero_optimization.offload_optimizer.nvme_path", kNoted},
    {"zero_optimization.offload_optimizer.pin_memory", kNoted},
    {"zero_optimization.offload_optimizer.buffer_count", kNoted},
    {"zero_optimization.offload_optimizer.fast_init", kNoted},
    {"zero_optimization.offload_optimizer.pipeline", kNoted},
    {"zero_optimization.offload_optimizer.pipeline_read", kNoted},
    {"zero_optimization.offload_optimizer.pipeline_write", kNoted},
    {"zero_optimization.offload_optimizer.super_offload", kNoted},
    {"zero_optimization.offload_optimizer.cpuadam_cores_perc", kNoted},
    {"zero_optimization.offload_param", kSection},
    {"zero_optimization.offload_param.device"},
    {"zero_optimization.offload_param.nvme_path", kNoted},
    {"zero_optimization.offload_param.pin_memory", kNoted},
    {"zero_optimization.offload_param.buffer_count", kNoted},
    {"zero_optimization.offload_param.buffer_size", kNoted},
    {"zero_optimization.offload_param.max_in_cpu", kNoted},
    {"zero_optimization.zero_hpz_partition_size", kRefused, kAllRanks, "1"},
    {"zero_optimization.mics_shard_size", kRefused, kAllRanks, "-1"},
    {"zero_optimization.mics_hierarchical_params_gather", kRefused, kAllRanks},
    {"zero_optimization.zero_quantized_weights", kRefused, kFull},
    {"zero_optimization.zero_quantized_nontrainable_weights", kRefused, kFull},
    {"zero_optimization.zero_quantized_gradients", kRefused, kFull},
    {"zero_optimization.zeropp_loco_param", kRefused, kFull},
    {"zero_optimization.allgather_partitions", kNoted},
    {"zero_optimization.allgather_bucket_size", kNoted},
    {"zero_optimization.overlap_comm", kNoted},
    {"zero_optimization.reduce_scatter", kNoted},
    {"zero_optimization.reduce_bucket_size", kNoted},
    {"zero_optimization.use_multi_rank_bucket_allreduce", kNoted},
    {"zero_optimization.contiguous_gradients", kNoted},
    {"zero_optimization.round_robin_gradients", kNoted},
    {"zero_optimization.load_from_fp32_weights", kNoted},
    {"zero_optimization.elastic_checkpoint", kNoted},
    {"zero_optimization.pipeline_loading_checkpoint", kNoted},
    {"zero_optimization.ignore_unused_parameters", kNoted},
    {"zero_optimization.legacy_stage1", kNoted},
    {"zero_optimization.sub_group_size", kNoted},
    {"zero_optimization.memory_efficient_linear", kNoted},
    {"zero_optimization.override_module_apply", kNoted},
    {"zero_optimization.log_trace_cache_warnings", kNoted},
    {"zero_optimization.enable_sanity_checks", kNoted},
    {"zero_optimization.leaf_module", kNoted},
    {"zero_optimization.fast_sharding_for_leaf_module", kNoted},
    {"zero_optimization.prefetch_bucket_size", kNoted},
    {"zero_optimization.param_persistence_threshold", kNoted},
    {"zero_optimization.model_persistence_threshold", kNoted},
    {"zero_optimization.max_live_parameters", kNoted},
    {"zero_optimization.max_reuse_distance", kNoted},
    {"zero_optimization.gather_16bit_weights_on_model_save", kNoted},
    {"zero_optimization.module_granularity_threshold", kNoted},
    {"zero_optimization.use_all_reduce_for_fetch_params", kNoted},
    {"zero_optimization.allgather_sequential", kNoted},
    {"zero_optimization.stage3_prefetch_bucket_size", kNoted},
    {"zero_optimization.stage3_param_persistence_threshold", kNoted},
    {"zero_optimization.stage3_model_persistence_threshold", kNoted},
    {"zero_optimization.stage3_max_live_parameters", kNoted},
    {"zero_optimization.stage3_max_reuse_distance", kNoted},
    {"zero_optimization.stage3_gather_16bit_weights_on_model_save", kNoted},
    {"zero_optimization.stage3_gather_fp16_weights_on_model_save", kNoted},
    {"zero_optimization.stage3_module_granularity_threshold", kNoted},
    {"zero_optimization.stage3_use_all_reduce_for_fetch_params", kNoted},
    {"zero_optimization.stage3_allgather_sequential", kNoted},
};

}  // namespace

const std::vector<AccelerateKey>& deepspeed_file_keys() {
  static const std::vector<AccelerateKey> keys = [] {
    std::vector<AccelerateKey> all(std::begin(kTop), std::end(kTop));
    all.insert(all.end(), std::begin(kPrecision), std::end(kPrecision));
    all.insert(all.end(), std::begin(kZero), std::end(kZero));
    return all;
  }();
  return keys;
}

}  // namespace trainrun
