#pragma once

#include <nlohmann/json.hpp>

#include "registry/formats/text/tokenizer.h"
#include "runner/model/model_records.h"
#include "runner/train/evaluation.h"

namespace trainrun {

/// generation_config.json of a causal language model: every key that came with the model it began from, and the tokens
/// that end a text where `trainrun generate` ends it. `tokenizer`: null: the data have none.
nlohmann::json generation_config_of(TrainedRun& run, const ModelRecord& record, const Tokenizer* tokenizer);

/// Names in `config`, that of a causal language model, those special tokens for which it has no word and transformers
/// would take its own.
void set_special_tokens(nlohmann::json& config, const Tokenizer* tokenizer);

}  // namespace trainrun
