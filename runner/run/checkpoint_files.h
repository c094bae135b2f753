#pragma once

#include <nlohmann/json.hpp>

#include <string>

#include "registry/language/error.h"
#include "registry/tensors/files/safetensors.h"
#include "runner/run/checkpoint_state.h"

namespace trainrun {

/// A checkpoint that is not there, not whole, or whose digests do not hold.
class CheckpointError : public Error {
 public:
  using Error::Error;
};

/// A checkpoint that is not there any more, or not the one that it was: the run that it is of goes on, and removed or
/// replaced it while it was read. It was not damaged; a newer one may be there.
class RemovedCheckpoint : public CheckpointError {
 public:
  using CheckpointError::CheckpointError;
};

/// A checkpoint of which nobody can say that it is damaged: the system did not let us read it, or a newer trainrun
/// wrote it. Passing over it would lose what it holds.
class UnusableCheckpoint : public Error {
 public:
  using Error::Error;
};

/// What one checkpoint holds. `state` is a JSON object with at least an integer "step"; any number in it may be
/// infinite or NaN. Its keys "digest", "files", "format" and "is_best" belong to the store.
struct CheckpointContent {
  NamedTensors model;
  NamedTensors optimizer;
  nlohmann::json state;
};

constexpr const char* kStateFile = "state.json";

/// Writes the folder `path`, which must not be there, with the files of a checkpoint; all of it has reached the disk
/// when this returns. Throws Error; what was written until then stays.
void write_checkpoint(const std::string& path, const CheckpointContent& content, bool is_best);

/// Of the checkpoint in the folder `path`. These throw CheckpointError where it is damaged or not there, UnusableCheckpoint
/// where nobody can say.
CheckpointState read_state(const std::string& path);
/// Reads the files that `state` names, and compares their digests.
void verify_files(const std::string& path, const CheckpointState& state);
/// Reads the tensors, and compares the digests on the way.
CheckpointContent read_checkpoint(const std::string& path);

[[noreturn]] void throw_unusable(const std::string& path, const std::string& why);

}  // namespace trainrun
