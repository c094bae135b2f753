#pragma once

#include <nlohmann/json_fwd.hpp>

#include "registry/catalog.h"
#include "registry/kinds/layer.h"

namespace trainrun {

/// Runs the fuzzer (fuzz.h) over the request's `reader`, by its name: safetensors, torch_file, tensor_file, pickle,
/// pretrained_folder, checkpoint, gzip, images, shards, tokenizer_json, tokenizer_folder, chat_template,
/// generation_config, recipe; dataset, of the request's `spec`; or layers, built of `spec` for the given inputs.
/// `files` are the seeds: a path, or {"path", "place"}. `folder`, `rounds`, `seconds`, `seed` and `first` are those of
/// FuzzPlan. The reply is a FuzzResult.
nlohmann::json run_fuzzer(const Catalog& catalog, const nlohmann::json& request, const LayerInputs& inputs);

}  // namespace trainrun
