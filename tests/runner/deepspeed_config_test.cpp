#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/doctest.h"
#include "tests/runner/accelerate_support.h"
#include "tests/support.h"

namespace trainrun {
namespace {

using test::contains;
using test::Keys;
using test::keys_of;
using test::lines_of;
using test::map_text;

TEST_CASE("ZeRO's stage 0 shards nothing: MULTI_GPU, or MULTI_CPU with use_cpu") {
  const std::string text = "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 0, gradient_clipping: 0}\n";
  Keys keys = keys_of(map_text(text));
  CHECK(keys["distributed_type"] == "MULTI_GPU");
  CHECK(keys["training.max_grad_norm"] == "null");
  CHECK(keys.count("sharding.zero_stage") == 0);
  keys = keys_of(map_text(text + "use_cpu: true\n"));
  CHECK(keys["distributed_type"] == "MULTI_CPU");
  CHECK(keys["device"] == "cpu");
  const auto disks =
      map_text("distributed_type: DEEPSPEED\ndeepspeed_config: {offload_optimizer_device: nvme, zero_stage: 4}\n");
  CHECK(contains(lines_of(disks.problems), "nothing is offloaded to disks"));
  CHECK(contains(lines_of(disks.problems), "ZeRO has stages 0 to 3, found 4"));
}

TEST_CASE("a DeepSpeed file's faults have their place in it") {
  const auto config = map_accelerate_config(
      "distributed_type: DEEPSPEED\ndeepspeed_config: {deepspeed_config_file: zero.json, zero_stage: 2}\n",
      "config.yaml", [](const std::string& path) {
        return path == "zero.json" ? std::optional<std::string>(
                                         "{\n \"zero_optimization\": {\"stage\": 5},\n \"fp16\": {\"enabled\": true, "
                                         "\"loss_scale\": 128},\n \"amp\": {\"enabled\": true}\n}")
                                   : std::nullopt;
      });
  const std::string problems = lines_of(config.problems);
  CHECK(contains(problems, "zero.json:2:33: zero_optimization.zero_stage: ZeRO has stages 0 to 3, found 5"));
  CHECK(contains(problems, "zero.json:3:42: fp16.loss_scale: the loss scale adapts itself"));
  CHECK(contains(problems, "amp: Apex's amp is not supported"));
  CHECK(contains(problems,
                 "config.yaml:2:66: deepspeed_config.zero_stage: the DeepSpeed file sets it; leave it out here"));
  const auto twice = map_accelerate_config(
      "distributed_type: DEEPSPEED\nmixed_precision: bf16\ndeepspeed_config: {deepspeed_config_file: zero.json}\n",
      "config.yaml", [](const std::string&) {
        return std::optional<std::string>(
            "{\"zero_optimization\": {\"stage\": 1}, \"fp16\": {\"enabled\": true}, "
            "\"amp\": {\"enabled\": false}}");
      });
  CHECK(lines_of(twice.problems) ==
        "config.yaml:2:18: mixed_precision: the DeepSpeed file sets it; write \"auto\" there, or leave it out here\n");
  const auto missing = map_text("distributed_type: DEEPSPEED\ndeepspeed_config: {deepspeed_config_file: none.json}\n");
  CHECK(contains(lines_of(missing.problems), "deepspeed_config_file: cannot read none.json"));
}

/// What a DeepSpeed file says, with `more` lines of the file of Accelerate.
AccelerateConfig map_deepspeed(const std::string& json, const std::string& more = "") {
  return map_accelerate_config(
      "distributed_type: DEEPSPEED\ndeepspeed_config: {deepspeed_config_file: zero.json}\n" + more, "config.yaml",
      [&](const std::string&) { return std::optional<std::string>(json); });
}

TEST_CASE("what a DeepSpeed file asks for at any depth and cannot have is refused") {
  const std::vector<std::pair<std::string, std::string>> asked = {
      {R"("zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8})",
       "zero_optimization.zero_hpz_partition_size"},
      {R"("zero_optimization": {"stage": 3, "zero_quantized_weights": true})",
       "zero_optimization.zero_quantized_weights"},
      {R"("zero_optimization": {"stage": 3, "zero_quantized_gradients": true})",
       "zero_optimization.zero_quantized_gradients"},
      {R"("zero_optimization": {"stage": 3, "mics_shard_size": 4})", "zero_optimization.mics_shard_size"},
      {R"("zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 0.3}})",
       "zero_optimization.offload_optimizer.ratio"},
      {R"("zero_optimization": {"stage": 2}, "communication_data_type": "fp16")", "communication_data_type"},
      {R"("zero_optimization": {"stage": 0}, "communication_data_type": "int4")", "communication_data_type"},
      {R"("zero_optimization": {"stage": 2}, "activation_checkpointing": {"partition_activations": true})",
       "activation_checkpointing.partition_activations"},
      {R"("zero_optimization": {"stage": 2}, "activation_checkpointing": {"number_checkpoints": 4})",
       "activation_checkpointing.number_checkpoints"},
      {R"("zero_optimization": {"stage": 2}, "elasticity": {"enabled": true, "max_train_batch_size": 2000})",
       "elasticity"},
      {R"("zero_optimization": {"stage": 2}, "optimizer": {"type": "OneBitAdam", "params": {"lr": 1e-3}})",
       "optimizer.type"},
      {R"("zero_optimization": {"stage": 2}, "optimizer": {"type": "ZeroOneAdam"})", "optimizer.type"},
      {R"("zero_optimization": {"stage": 2}, "fp16": {"enabled": true, "fp16_master_weights_and_grads": true})",
       "fp16.fp16_master_weights_and_grads"},
      {R"("zero_optimization": {"stage": 2}, "fp16": true)", "fp16"},
      {R"("zero_optimization": {"stage": 2}, "bf16": {"enabled": true, "bf16_optimizer_states": true})",
       "bf16.bf16_optimizer_states"},
      {R"("zero_optimization": {"stage": 2}, "data_types": {"grad_accum_dtype": "bf16"})",
       "data_types.grad_accum_dtype"},
      {R"("zero_optimization": {"stage": 2}, "tensor_parallel": {"autotp_size": 4})", "tensor_parallel.autotp_size"},
      {R"("zero_optimization": {"stage": 2}, "sequence_parallel_size": 2)", "sequence_parallel_size"},
      {R"("zero_optimization": {"stage": 2}, "curriculum_learning": {"enabled": true})", "curriculum_learning"},
      {R"("zero_optimization": {"stage": 2}, "pipeline": {"stages": 2})", "pipeline"},
  };
  for (const auto& one : asked) {
    const std::string& json = one.first;
    const std::string& path = one.second;
    CAPTURE(json);
    const AccelerateConfig config = map_deepspeed("{" + json + "}");
    REQUIRE(config.problems.size() == 1);
    CHECK(config.problems[0].path == path);
    CHECK(contains(lines_of(config.problems), "zero.json:1:"));
  }
}

TEST_CASE("what a DeepSpeed file asks for in vain is refused by no value that asks for nothing") {
  const AccelerateConfig config = map_deepspeed(
      R"({"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 1, "zero_quantized_weights": false,
          "mics_shard_size": -1, "offload_optimizer": {"device": "none", "ratio": 1.0}},
          "communication_data_type": "fp32", "activation_checkpointing": {"partition_activations": false},
          "elasticity": {"enabled": false}, "amp": {"enabled": false}, "data_types": {"grad_accum_dtype": "auto"},
          "tensor_parallel": {"autotp_size": 1}, "gradient_clipping": "auto", "fp16": {"enabled": false, "hysteresis": 2}})");
  CHECK(lines_of(config.problems).empty());
  CHECK_FALSE(contains(lines_of(config.notes), "fp16"));  // it is off
}

TEST_CASE("a key that DeepSpeed does not have is refused with a near match of its section") {
  const std::string problems = lines_of(
      map_deepspeed(
          "{\"zero_optimization\": {\"stage\": 2, \"overlap_com\": true},\n \"gradient_acumulation_steps\": 4}")
          .problems);
  CHECK(contains(problems,
                 "zero.json:1:36: zero_optimization.overlap_com: DeepSpeed's files have no such key; did you "
                 "mean overlap_comm?"));
  CHECK(contains(problems,
                 "zero.json:2:2: gradient_acumulation_steps: DeepSpeed's files have no such key; did you mean "
                 "gradient_accumulation_steps?"));
}

TEST_CASE("every key of a DeepSpeed file that is not read is named, at every depth") {
  const std::string notes = lines_of(map_deepspeed(R"({
      "train_batch_size": 64, "wandb": {"enabled": true, "project": "p"}, "tensorboard": {"enabled": false, "job_name": "j"},
      "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "betas": [0.9, 0.999]}},
      "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10}},
      "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 1e4, "offload_param": {"pin_memory": true}},
      "fp16": {"enabled": true, "hysteresis": 2, "min_loss_scale": 1, "consecutive_hysteresis": true, "auto_cast": true}})")
                                         .notes);
  for (const char* name :
       {"train_batch_size", "wandb.project", "optimizer.type", "optimizer.params.lr", "optimizer.params.betas",
        "scheduler.type", "scheduler.params.warmup_num_steps", "zero_optimization.stage3_param_persistence_threshold",
        "zero_optimization.offload_param.pin_memory", "fp16.auto_cast",
        "fp16.hysteresis: ", "fp16.min_loss_scale: ", "fp16.consecutive_hysteresis: "}) {
    CAPTURE(name);
    CHECK(contains(notes, name));
  }
  CHECK_FALSE(contains(notes, "tensorboard"));  // it is off
}

TEST_CASE("a DeepSpeed file may leave fp16 to Accelerate's, and offload in old words") {
  const std::string scale = R"({"zero_optimization": {"stage": 1, "cpu_offload": true},
      "fp16": {"enabled": "auto", "initial_scale_power": 4, "hysteresis": 2}})";
  Keys keys = keys_of(map_deepspeed(scale, "mixed_precision: fp16\n"));
  CHECK(keys["mixed_precision"] == "fp16");
  CHECK(keys["grad_scaler.init_scale"] == "16");
  CHECK(keys["sharding.cpu_offload"] == "true");
  const AccelerateConfig brain = map_deepspeed(scale, "mixed_precision: bf16\n");
  CHECK(keys_of(brain).count("grad_scaler.init_scale") == 0);
  CHECK(contains(lines_of(brain.notes), "fp16: is for mixed_precision: fp16; not read"));
}

TEST_CASE("communication_data_type rounds what ranks send where nothing is sharded") {
  const auto hook = [](const std::string& type) {
    return keys_of(map_deepspeed(R"({"zero_optimization": {"stage": 0}, "communication_data_type": ")" + type +
                                 "\"}"))["distributed.comm_hook"];
  };
  CHECK(hook("fp16") == "FP16Compression");
  CHECK(hook("bfp16") == "BF16Compression");
  CHECK(hook("fp32").empty());
  CHECK(keys_of(map_deepspeed(
            R"({"zero_optimization": {"stage": 0}, "dataloader_drop_last": true})"))["dataloader.drop_last"] == "true");
}

}  // namespace
}  // namespace trainrun
