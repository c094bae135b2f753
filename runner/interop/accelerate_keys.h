#pragma once

#include <string>
#include <vector>

// What the keys of Accelerate's configuration files are to a recipe, section by section. What the rows with kRead come
// to stands in accelerate_config.cpp.

namespace trainrun {

enum class KeyFate {
  kRead,         // by a function of its own
  kCopied,       // to the recipe's key `text`
  kMeaningless,  // named in a note, where it is switched on
  kRefused,      // for the reason `text`, where it is switched on
  kSection       // a mapping, whose keys have rows of their own ("fp16.enabled")
};

struct AccelerateKey {
  const char* key;
  KeyFate fate = KeyFate::kRead;
  const char* text = "";
  const char* neutral = "";  // the value that, besides those that switch nothing on, asks for nothing
};

const std::vector<AccelerateKey>& top_keys();
const std::vector<AccelerateKey>& fsdp_keys();
const std::vector<AccelerateKey>& parallelism_keys();
const std::vector<AccelerateKey>& dynamo_keys();
const std::vector<AccelerateKey>& mpirun_keys();
const std::vector<AccelerateKey>& deepspeed_keys();
/// Of a DeepSpeed file (accelerate_deepspeed_keys.cpp), those of its sections by their path.
const std::vector<AccelerateKey>& deepspeed_file_keys();

/// A distributed_type of Accelerate: the recipe's, or why there is none.
struct AccelerateType {
  const char* name;
  const char* recipe;
  const char* refusal = "";
};

const std::vector<AccelerateType>& accelerate_types();

/// In the order of their numbers, from 1.
const std::vector<std::string>& fsdp_strategies();
const std::vector<std::string>& fsdp_prefetches();

}  // namespace trainrun
