#include "runner/interop/accelerate_config.h"

#include <map>

#include "runner/loggers/loggers.h"
#include "tests/doctest.h"
#include "tests/runner/accelerate_support.h"
#include "tests/runner/recipe_support.h"
#include "tests/support.h"

namespace trainrun {
namespace {

using test::contains;
using test::Keys;
using test::keys_of;
using test::lines_of;
using test::map_text;
using test::read_sample;

struct Mapped {
  std::string file;
  Keys keys;
  std::vector<std::string> notes = {};  // a part of each
};

TEST_CASE("what `accelerate config` wrote becomes the recipe's keys") {
  const std::vector<Mapped> samples = {
      {"no.yaml",
       {{"distributed_type", "'NO'"},
        {"num_processes", "1"},
        {"num_machines", "1"},
        {"machine_rank", "0"},
        {"mixed_precision", "bf16"}}},
      {"default_config.json",
       {{"distributed_type", "'NO'"},
        {"num_processes", "1"},
        {"num_machines", "1"},
        {"machine_rank", "0"},
        {"device", "cpu"},
        {"mixed_precision", "bf16"}}},
      {"multi_cpu.yaml",
       {{"distributed_type", "MULTI_CPU"},
        {"num_processes", "2"},
        {"num_machines", "1"},
        {"machine_rank", "0"},
        {"device", "cpu"},
        {"mixed_precision", "'no'"}}},
      {"multi_cpu_mpirun.yaml",
       {{"distributed_type", "MULTI_CPU"},
        {"num_processes", "16"},
        {"num_machines", "4"},
        {"machine_rank", "0"},
        {"main_process_ip", "'10.0.0.1'"},
        {"main_process_port", "29500"},
        {"device", "cpu"},
        {"mixed_precision", "'no'"}},
       {"mpirun_config: trainrun does not start mpirun"}},
      {"multi_gpu.yaml",
       {{"distributed_type", "MULTI_GPU"},
        {"num_processes", "8"},
        {"num_machines", "2"},
        {"machine_rank", "1"},
        {"main_process_ip", "'10.0.0.1'"},
        {"main_process_port", "29501"},
        {"distributed.pin_cores", "true"},
        {"mixed_precision", "fp16"}}},
      {"fsdp1.yaml",
       {{"distributed_type", "FSDP"},
        {"num_processes", "4"},
        {"num_machines", "1"},
        {"machine_rank", "0"},
        {"sharding.strategy", "SHARD_GRAD_OP"},
        {"sharding.zero_stage", "null"},
        {"sharding.cpu_offload", "true"},
        {"sharding.prefetch", "false"},
        {"mixed_precision", "bf16"}},
       {"fsdp_offload_params: sharding.cpu_offload", "fsdp_auto_wrap_policy: Python's classes (BertLayer)"}},
      {"fsdp2.yaml",
       {{"distributed_type", "FSDP"},
        {"num_processes", "4"},
        {"num_machines", "1"},
        {"machine_rank", "0"},
        {"sharding.strategy", "FULL_SHARD"},
        {"sharding.zero_stage", "null"},
        {"sharding.cpu_offload", "false"},
        {"mixed_precision", "bf16"}},
       {"fsdp_auto_wrap_policy: SIZE_BASED_WRAP is not known here"}},
      {"old_spellings.yaml",
       {{"distributed_type", "FSDP"},
        {"num_processes", "2"},
        {"num_machines", "1"},
        {"machine_rank", "0"},
        {"device", "cpu"},
        {"sharding.strategy", "SHARD_GRAD_OP"},
        {"sharding.zero_stage", "null"},
        {"sharding.cpu_offload", "false"},
        {"mixed_precision", "fp16"}}},
      {"deepspeed.yaml",
       {{"distributed_type", "FSDP"},
        {"num_processes", "4"},
        {"num_machines", "1"},
        {"machine_rank", "0"},
        {"sharding.zero_stage", "3"},
        {"sharding.cpu_offload", "true"},
        {"training.gradient_accumulation_steps", "4"},
        {"training.max_grad_norm", "0.5"},
        {"mixed_precision", "bf16"}},
       {"offload_param_device: parameters stay on their device"}},
      {"deepspeed_file.yaml",
       {{"distributed_type", "FSDP"},
        {"num_processes", "2"},
        {"num_machines", "1"},
        {"machine_rank", "0"},
        {"sharding.zero_stage", "2"},
        {"sharding.cpu_offload", "true"},
        {"training.gradient_accumulation_steps", "2"},
        {"training.max_grad_norm", "1.0"},
        {"dataloader.batch_size", "8"},
        {"grad_scaler.init_scale", "4096"},
        {"grad_scaler.growth_interval", "500"},
        {"mixed_precision", "fp16"}},
       {"deepspeed_zero2.json:1:1: ignored", "zero_optimization.overlap_comm, zero_optimization.contiguous_gradients",
        "steps_per_print, train_batch_size", "optimizer.type",
        "fp16.hysteresis: the loss scale is lowered at each overflow",
        "zero_optimization.offload_optimizer.pin_memory, zero_optimization.allgather_bucket_size"}},
  };
  for (const Mapped& sample : samples) {
    CAPTURE(sample.file);
    const AccelerateConfig config = read_sample(sample.file);
    CHECK(lines_of(config.problems).empty());
    CHECK(keys_of(config) == sample.keys);
    CHECK(config.settings.size() == sample.keys.size());  // none is said twice
    const std::string notes = lines_of(config.notes);
    for (const std::string& part : sample.notes) {
      CAPTURE(part);
      CHECK(contains(notes, part));
    }
  }
}

TEST_CASE("what cannot be had is refused at its place, with a reason") {
  const std::vector<std::pair<std::string, std::vector<std::string>>> samples = {
      {"tpu.yaml", {"tpu.yaml:3:19: distributed_type: XLA: TPUs need XLA"}},
      {"megatron_lm.yaml", {"megatron_lm.yaml:3:19: distributed_type: MEGATRON_LM: a model is not cut into"}},
      {"multi_npu.yaml", {"MULTI_NPU: LibTorch's wheel supports only CPUs and NVIDIA GPUs"}},
      {"multi_xpu.yaml", {"MULTI_XPU: LibTorch's wheel supports only"}},
      {"multi_hpu.yaml", {"MULTI_HPU: LibTorch's wheel supports only"}},
      {"multi_neuron.yaml", {"MULTI_NEURON: LibTorch's wheel supports only"}},
      {"sagemaker.yaml",
       {"sagemaker.yaml:2:22: compute_environment: a SageMaker job is submitted with Amazon's own SDK"}},
      {"fsdp2_tensor_parallel.yaml",
       {"fsdp2_tensor_parallel.yaml:7:34: fsdp_config.fsdp_activation_checkpointing: the recipe chooses the layers",
        "parallelism_config.parallelism_config_tp_size: layers are not cut into tensor-parallel parts; write 1"}},
      {"fp8_dynamo.yaml",
       {"fp8_dynamo.yaml:6:19: dynamo_config.dynamo_backend: torch.compile needs Python",
        "fp8_dynamo.yaml:20:10: gpu_ids: write all, and choose the GPUs where trainrun starts: "
        "CUDA_VISIBLE_DEVICES=0,1",
        "fp8_dynamo.yaml:23:18: mixed_precision: fp8 needs"}},
  };
  for (const auto& sample : samples) {
    const auto& file = sample.first;
    const auto& reasons = sample.second;
    CAPTURE(file);
    const AccelerateConfig config = read_sample(file);
    const std::string problems = lines_of(config.problems);
    CAPTURE(problems);
    CHECK(config.problems.size() == reasons.size());
    for (const std::string& reason : reasons) {
      CAPTURE(reason);
      CHECK(contains(problems, reason));
    }
  }
}

TEST_CASE("keys that mean nothing here are named in one note") {
  const std::string notes = lines_of(read_sample("fsdp1.yaml").notes);
  CHECK(contains(notes, "fsdp1.yaml:1:1: without meaning here: main_training_function, same_network, fsdp_config."));
  CHECK(contains(notes, "fsdp_config.fsdp_sync_module_states"));
  CHECK_FALSE(contains(notes, "debug"));  // it is off
}

TEST_CASE("an unknown key is refused with a near match, in a section too") {
  const auto config = map_text("distributed_type: FSDP\nnum_proceses: 4\nfsdp_config:\n  fsdp_sharding_stategy: 1\n");
  const std::string problems = lines_of(config.problems);
  CHECK(contains(problems,
                 "config.yaml:2:1: num_proceses: Accelerate's files have no such key; did you mean num_processes?"));
  CHECK(contains(problems,
                 "config.yaml:4:3: fsdp_config.fsdp_sharding_stategy: Accelerate's files have no such key; did you "
                 "mean fsdp_sharding_strategy?"));
  CHECK(contains(lines_of(map_text("distributed_type: MULTI_GPUS\n").problems), "did you mean MULTI_GPU?"));
  CHECK(contains(lines_of(map_text("num_processes: 2\n").problems), "distributed_type: is missing"));
}

TEST_CASE("sharding strategies come by name, by number, or as whether to reshard") {
  const auto strategy = [](const std::string& says) {
    return keys_of(map_text("distributed_type: FSDP\nfsdp_config: {" + says + "}\n"))["sharding.strategy"];
  };
  CHECK(strategy("fsdp_sharding_strategy: 1") == "FULL_SHARD");
  CHECK(strategy("fsdp_sharding_strategy: '2'") == "SHARD_GRAD_OP");
  CHECK(strategy("fsdp_sharding_strategy: no_shard") == "NO_SHARD");
  CHECK(strategy("fsdp_version: 2, fsdp_reshard_after_forward: false") == "SHARD_GRAD_OP");
  CHECK(strategy("") == "FULL_SHARD");
  const auto problems = [](const std::string& says) {
    return lines_of(map_text("distributed_type: FSDP\nfsdp_config: {" + says + "}\n").problems);
  };
  CHECK(contains(problems("fsdp_sharding_strategy: 4"), "HYBRID_SHARD shards within each machine"));
  CHECK(contains(problems("fsdp_sharding_strategy: 7"), "unknown strategy '7'"));
  CHECK(contains(problems("fsdp_sharding_strategy: 1, fsdp_reshard_after_forward: false"), "leave one out"));
}

TEST_CASE("parallelism_config is read whatever the distributed_type") {
  const auto problems = [](const std::string& type, const std::string& says) {
    return lines_of(
        map_text("distributed_type: " + type + "\nnum_processes: 8\nparallelism_config: {" + says + "}\n").problems);
  };
  for (const char* type : {"MULTI_GPU", "MULTI_CPU", "FSDP", "DEEPSPEED", "'NO'"}) {
    CAPTURE(type);
    CHECK(contains(problems(type, "tp_size: 8"), "parallelism_config.parallelism_config_tp_size: layers are not cut"));
    CHECK(contains(problems(type, "parallelism_config_cp_size: 2"), "sequences are not cut into parts; write 1"));
    CHECK(contains(problems(type, "tp_sise: 8"), "no such key; did you mean parallelism_config_tp_size?"));
  }
  CHECK(contains(problems("MULTI_GPU", "dp_shard_size: 8"), "write distributed_type: FSDP, which shards parameters"));
  CHECK(problems("MULTI_GPU", "dp_shard_size: 1, tp_size: 1").empty());
  CHECK(problems("FSDP", "dp_shard_size: 8").empty());
  CHECK(contains(problems("FSDP", "dp_shard_size: 4"), "parameters are sharded over all processes; write 8"));
  const auto config = map_text("distributed_type: MULTI_GPU\nparallelism_config: {tp_size: 1, cp_backend: torch}\n");
  CHECK(contains(lines_of(config.notes), "without meaning here: parallelism_config.cp_backend"));
}

TEST_CASE("keys of Accelerate's other sections are named, or refused") {
  const auto config = map_text(
      "distributed_type: FSDP\nmixed_precision: 'no'\n"
      "fsdp_config: {fsdp_min_num_params: 1000000, fsdp_transformer_layer_cls_to_wrap: BertLayer}\n"
      "dynamo_config: {dynamo_backend: 'no', dynamo_mode: default, dynamo_use_dinamic: true}\n"
      "fp8_config: {backend: TE, margin: 0}\ndeepspeed_config: {zero_stage: 2}\n");
  CHECK(contains(lines_of(config.problems),
                 "dynamo_config.dynamo_use_dinamic: Accelerate's files have no such key; did you mean "
                 "dynamo_use_dynamic?"));
  CHECK(config.problems.size() == 1);
  const std::string notes = lines_of(config.notes);
  for (const char* name :
       {"fsdp_config.fsdp_min_num_params", "fsdp_config.fsdp_transformer_layer_cls_to_wrap",
        "dynamo_config.dynamo_mode",
        "fp8_config: is for mixed_precision: fp8; not read: fp8_config.backend, fp8_config.margin",
        "deepspeed_config: is for distributed_type: DEEPSPEED; not read: deepspeed_config.zero_stage"}) {
    CAPTURE(name);
    CHECK(contains(notes, name));
  }
}

TEST_CASE("one GPU is a device; several are chosen where trainrun starts") {
  CHECK(keys_of(map_text("distributed_type: 'NO'\ngpu_ids: 1\n"))["device"] == "cuda:1");
  CHECK(keys_of(map_text("distributed_type: 'NO'\ngpu_ids: all\n")).count("device") == 0);
  CHECK(keys_of(map_text("distributed_type: MULTI_CPU\ngpu_ids: 0,1\n"))["device"] == "cpu");
  CHECK(
      contains(lines_of(map_text("distributed_type: MULTI_GPU\ngpu_ids: 0,1\n").problems), "CUDA_VISIBLE_DEVICES=0,1"));
}

TEST_CASE("sections of another distributed_type are not read, and said so") {
  const auto config = map_text(
      "distributed_type: 'NO'\nfsdp_config: {x: 1}\ndeepspeed_config: {deepspeed_config_file: path/to/be/ignored}\n"
      "megatron_lm_config: {}\n");
  CHECK(lines_of(config.problems).empty());
  CHECK(contains(lines_of(config.notes), "fsdp_config: is for distributed_type: FSDP; not read"));
  CHECK(contains(lines_of(config.notes), "deepspeed_config: is for distributed_type: DEEPSPEED; not read"));
  CHECK_FALSE(contains(lines_of(config.notes), "megatron_lm_config"));
}

TEST_CASE("what is no configuration is one problem") {
  CHECK(contains(lines_of(map_text("- a\n").problems), "config.yaml:1:1: a configuration of Accelerate is a mapping"));
  CHECK(map_text("").problems.size() == 1);
  CHECK(map_text("a: [\n").problems.size() == 1);
  CHECK(contains(lines_of(read_sample("no_such.yaml").problems), "no_such.yaml: cannot open: No such file"));
}

TEST_CASE("faults of a value keep the place of the file that said it, and the command line's keep their number") {
  Catalog& catalog = test::catalog_of_the_program();
  const auto faults = [&](const AccelerateConfig& config, const std::vector<std::string>& overrides) {
    try {
      load_recipe("tests/recipes/digits_small.yaml", config, overrides, catalog);
    } catch (const RecipeError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const AccelerateConfig config = map_text("distributed_type: MULTI_CPU\nnum_processes: many\nnum_machines: 0\n");
  const std::string text = faults(config, {"seed=1", "optimizer.lr=fast"});
  CHECK(contains(text, "config.yaml:2:16: num_processes: "));
  CHECK(contains(text, "config.yaml:3:15: num_machines: "));
  CHECK(contains(text, "command line:2:14: optimizer.lr: "));
  const std::string refused = faults(read_sample("tpu.yaml"), {"optimizer.lr=fast"});
  CHECK(contains(refused, "TPUs need XLA"));
  CHECK(contains(refused, "command line:1:14: optimizer.lr: "));
  CHECK_FALSE(contains(refused, "several processes need"));  // that follows from the refusal
}

TEST_CASE("the file comes after the recipe and before the command line") {
  Catalog& catalog = test::catalog_of_the_program();
  const LoadedRecipe loaded = load_recipe("tests/recipes/digits_small.yaml", read_sample("multi_cpu.yaml"),
                                          {"num_processes=4", "device=auto"}, catalog);
  CHECK(loaded.recipe.distributed_type == DistributedType::kMultiCpu);
  CHECK(loaded.recipe.num_processes == 4);
  CHECK(loaded.recipe.device.is_auto());
  const LoadedRecipe plain = load_recipe("tests/recipes/digits_small.yaml", AccelerateConfig(), {}, catalog);
  CHECK(plain.recipe.num_processes == 1);
}

}  // namespace
}  // namespace trainrun
