#pragma once

#include <string>

#include "registry/tensors/named_tensors.h"

namespace trainrun {

/// Reads the weights of a folder in Hugging Face's layout: model.safetensors; shards and model.safetensors.index.json;
/// pytorch_model.bin, as data; or shards of that and their index; the first of these that is there. Throws DataError
/// naming the file where there is none, one is damaged, or shards and index do not agree.
NamedTensors read_pretrained_folder(const std::string& folder);

/// Whether the folder has two tensors of these names, a prefix of the first of which may be missing, and their values
/// differ. Reads no others, where the files are of safetensors; false where it has no weights.
bool differ_in_folder(const std::string& folder, const std::string& name, const std::string& other);

/// Throws the same DataError where the folder or all of these files are missing; opens none of them.
void check_pretrained_folder(const std::string& folder);

}  // namespace trainrun
