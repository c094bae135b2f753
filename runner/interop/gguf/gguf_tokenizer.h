#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "registry/formats/text/tokenizer.h"
#include "runner/interop/gguf/gguf_file.h"

namespace trainrun {

/// Adds what llama.cpp must know of a tokenizer (tokenizer.ggml.*): tokens, their types, merges or scores, special tokens,
/// the chat template. `folder`: the tokenizer as it is exported for transformers; `rows`: how many tokens the model has,
/// of which those beyond the tokenizer's are unused. Throws DataError for a tokenizer that GGUF has no name for.
void add_tokenizer(GgufFile& file, const std::filesystem::path& folder, const Tokenizer& tokenizer, int64_t rows);

}  // namespace trainrun
