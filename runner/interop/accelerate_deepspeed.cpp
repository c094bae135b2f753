#include <algorithm>
#include <cmath>
#include <iomanip>
#include <memory>
#include <sstream>

#include "runner/interop/accelerate_sharding.h"
#include "runner/recipe/yaml.h"

namespace trainrun::accelerate {
namespace {

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
  if (is_off(device) || upper(device.text()) == "CPU" || upper(device.text()) == "TRUE") return true;
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
               "parameters stay on their device; sharding.cpu_offload moves only optimizer state");
  }
  return is_stage ? stage : std::nullopt;
}

/// What is said under `keys`, one in the other.
const Value* in_file(const Value& file, const std::vector<std::string>& keys) {
  const Value* value = &file;
  for (const std::string& key : keys) value = value ? value->find(key) : nullptr;
  return unless_auto(value);
}

/// How the loss scale changes, which `grad_scaler` says here.
void map_loss_scale(Draft& draft, const Value& file) {
  const Value* fixed = in_file(file, {"fp16", "loss_scale"});
  if (fixed && parse_number(fixed->text()) != 0.0) {
    draft.refuse(*fixed, "fp16.loss_scale", "the loss scale adapts itself (grad_scaler); write 0");
  }
  const Value* power = in_file(file, {"fp16", "initial_scale_power"});
  if (const auto number = power ? parse_number(power->text()) : std::nullopt) {
    std::ostringstream scale;
    scale << std::setprecision(17) << std::exp2(*number);
    draft.set("grad_scaler.init_scale", scale.str(), *power);
  } else if (power) {
    draft.refuse(*power, "fp16.initial_scale_power", "expected a number, found " + power->describe());
  }
  if (const Value* window = in_file(file, {"fp16", "loss_scale_window"})) {
    draft.copy("grad_scaler.growth_interval", *window, "fp16.loss_scale_window");
  }
  const Value* hysteresis = in_file(file, {"fp16", "hysteresis"});
  if (hysteresis && parse_number(hysteresis->text()) != 1.0) {
    draft.note(*hysteresis, "fp16.hysteresis", "the loss scale is lowered at each overflow, as with hysteresis: 1");
  }
  if (const Value* again = in_file(file, {"fp16", "consecutive_hysteresis"}); is_on(again)) {
    draft.note(*again, "fp16.consecutive_hysteresis", "the loss scale is lowered at each overflow, without hysteresis");
  }
  if (const Value* least = in_file(file, {"fp16", "min_loss_scale"}); is_on(least)) {
    draft.note(*least, "fp16.min_loss_scale", "the loss scale has no lower bound");
  }
}

/// `half`: whether the file of Accelerate says fp16, for one that leaves it to that ("auto").
void map_file_precision(Draft& draft, const Value& file, bool half) {
  const Value* enabled = in_file(file, {"fp16", "enabled"});
  const Value* brain = in_file(file, {"bf16", "enabled"});
  if (!brain) brain = in_file(file, {"bfloat16", "enabled"});
  if (is_on(enabled) && is_on(brain)) {
    return draft.refuse(*brain, "bf16.enabled", "fp16 is enabled as well; choose one");
  }
  if (is_on(brain)) draft.set("mixed_precision", "bf16", *brain);
  if (is_on(enabled)) draft.set("mixed_precision", "fp16", *enabled);
  const Value* section = file.find("fp16");
  if (is_on(enabled) || (half && !enabled && section && section->is_map())) {
    map_loss_scale(draft, file);
  } else if (is_on(section)) {  // enabled: auto, or not there
    draft.note(*section, "fp16", "is for mixed_precision: fp16; not read");
  }
}

/// What the ranks send: float32 where parameters are sharded; else a hook may round it.
void map_communication(Draft& draft, const Value& file, int64_t stage) {
  const Value* type = in_file(file, {"communication_data_type"});
  if (!type || upper(type->text()) == "FP32") return;
  const std::string name = upper(type->text());
  const std::string hook = name == "FP16"                      ? "FP16Compression"
                           : name == "BF16" || name == "BFP16" ? "BF16Compression"
                                                               : "";
  if (hook.empty()) {
    draft.refuse(*type, "communication_data_type", "unknown type '" + type->text() + "'; known: fp32, fp16, bfp16");
  } else if (stage > 0) {
    draft.refuse(*type, "communication_data_type", "sums of sharded gradients are float32; write fp32");
  } else {
    draft.set("distributed.comm_hook", hook, *type);
  }
}

void map_file_optimizer(Draft& draft, const Value& file, std::vector<std::string>& not_read) {
  const Value* type = in_file(file, {"optimizer", "type"});
  if (!type) return;
  const std::vector<std::string> compressing = {"ONEBITADAM", "ZEROONEADAM", "ONEBITLAMB"};
  if (std::find(compressing.begin(), compressing.end(), upper(type->text())) != compressing.end()) {
    draft.refuse(*type, "optimizer.type",
                 type->text() +
                     " compresses what ranks send, which trainrun's optimizers do not do; write AdamW, and "
                     "distributed.comm_hook: PowerSGD in the recipe");
  } else {
    not_read.emplace_back("optimizer.type");
  }
}

void refuse_said_twice(Draft& draft, const Section& section) {
  for (const char* key : {"zero_stage", "gradient_accumulation_steps", "gradient_clipping", "offload_optimizer_device",
                          "offload_param_device"}) {
    const Value* twice = section.find(key);
    if (twice) draft.refuse(*twice, joined_path(section.path, key), "the DeepSpeed file sets it; leave it out here");
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
    draft.refuse(file, "zero_optimization", "is missing; write {stage: 0}");
  } else {
    draft.refuse(file, "", "a DeepSpeed file is a mapping, found " + file.describe());
  }
  return {};
}

/// The device of `section`; of old files, which say `old: true`, that value.
const Value* offload_device(const Value& file, const char* section, const char* old) {
  const Value* device = in_file(file, {"zero_optimization", section, "device"});
  if (device) return device;
  const Value* given = in_file(file, {"zero_optimization", section});
  if (given && !given->is_map()) return given;  // walk_file says what is wrong
  return in_file(file, {"zero_optimization", old});
}

std::optional<int64_t> map_deepspeed_file(Draft& draft, const Value& file, const Value& type, bool half) {
  std::vector<std::string> not_read = draft.walk_file(file, deepspeed_file_keys());
  map_file_optimizer(draft, file, not_read);
  const auto stage =
      apply(draft,
            {in_file(file, {"zero_optimization", "stage"}), in_file(file, {"gradient_accumulation_steps"}),
             in_file(file, {"gradient_clipping"}), offload_device(file, "offload_optimizer", "cpu_offload"),
             offload_device(file, "offload_param", "cpu_offload_params"), "zero_optimization"},
            type);
  if (const Value* batch = in_file(file, {"train_micro_batch_size_per_gpu"})) {
    draft.copy("dataloader.batch_size", *batch, "train_micro_batch_size_per_gpu");
  }
  map_file_precision(draft, file, half);
  if (stage) map_communication(draft, file, *stage);
  if (!not_read.empty()) {
    draft.note(file, "", "ignored, since the recipe sets it or it has no meaning here: " + join(not_read));
  }
  return stage;
}

}  // namespace

std::optional<int64_t> map_deepspeed(Draft& draft, const Section& deepspeed, const Value& type, bool half,
                                     const ReadText& read) {
  if (deepspeed.value) draft.walk(deepspeed, deepspeed_keys());
  const Value* name = deepspeed.find("deepspeed_config_file");
  if (is_on(name)) {
    refuse_said_twice(draft, deepspeed);
    const Value file = read_deepspeed_file(draft, *name, read);
    return file.is_null() ? std::nullopt : map_deepspeed_file(draft, file, type, half);
  }
  const auto find = [&](const char* key) { return unless_auto(deepspeed.find(key)); };
  return apply(draft,
               {find("zero_stage"), find("gradient_accumulation_steps"), find("gradient_clipping"),
                find("offload_optimizer_device"), find("offload_param_device"), "deepspeed_config"},
               type);
}

}  // namespace trainrun::accelerate
