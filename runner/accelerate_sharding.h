#pragma once

#include <optional>

#include "runner/accelerate_draft.h"

namespace trainrun::accelerate {

/// fsdp_config, also where there is none. `type`: of distributed_type, the place of what nothing else says.
void map_fsdp(Draft& draft, const Section& fsdp, const Value& type);

/// parallelism_config, of which only its absence can be had.
void map_parallelism(Draft& draft, const Section& parallelism);

/// deepspeed_config, with the file that it may name. Returns ZeRO's stage; nothing where it is none.
std::optional<int64_t> map_deepspeed(Draft& draft, const Section& deepspeed, const Value& type, const ReadText& read);

}  // namespace trainrun::accelerate
