#pragma once

#include <optional>

#include "runner/interop/accelerate_draft.h"

namespace trainrun::accelerate {

inline void offload_optimizer(Draft& draft, const Value& from) {
  draft.set("sharding.cpu_offload", is_off(from) ? "false" : "true", from);
}

/// fsdp_config, also where there is none. `type`: of distributed_type, the place of what nothing else says.
void map_fsdp(Draft& draft, const Section& fsdp, const Value& type);

/// parallelism_config: processes have whole layers and, where `shards`, all of them together one copy.
void map_parallelism(Draft& draft, const Section& parallelism, bool shards, std::optional<int64_t> num_processes);

/// deepspeed_config, with the file that it may name; `half`: whether mixed_precision is fp16. Returns ZeRO's stage;
/// nothing where it is none.
std::optional<int64_t> map_deepspeed(Draft& draft, const Section& deepspeed, const Value& type, bool half,
                                     const ReadText& read);

}  // namespace trainrun::accelerate
