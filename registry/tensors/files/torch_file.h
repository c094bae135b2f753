#pragma once

#include <string>

#include "registry/tensors/files/safetensors.h"

namespace trainrun {

/// Reads the state dict that Python wrote with `torch.save(model.state_dict(), path)`, as data: nothing in the file is
/// run. Only the storages that the wanted tensors lie in are read; tensors that share one share it here, and strides
/// are kept.
///
/// A file that holds more (`{"model": …, "optimizer": …, "epoch": 3}`) gives the dict under `key`, or, where `key` is
/// "", the one under `state_dict`, `model` or `model_state_dict`. Throws DataError for anything else: a whole module,
/// TorchScript, the formats from before PyTorch 1.6, a damaged file, tensors that reach beyond their storage.
NamedTensors read_torch_file(const std::string& path, const std::string& key = "");

/// Reads weights from a safetensors file or from a state dict of `torch.save`, whichever the content is; the name does
/// not matter. `key` as above. Throws DataError.
NamedTensors load_weights(const std::string& path, const std::string& key = "");

}  // namespace trainrun
