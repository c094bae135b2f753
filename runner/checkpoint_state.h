#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <map>
#include <string>

#include "registry/files/digest.h"

namespace trainrun {

constexpr uint64_t kMostStateBytes = uint64_t{256} << 20;

/// What state.json of a checkpoint says.
struct CheckpointState {
  nlohmann::json content;                   // the trainer's own, with "step"
  std::map<std::string, FileDigest> files;  // the other files of the checkpoint
  bool is_best = false;                     // it was the best when it was saved

  /// Finished optimizer steps.
  int64_t step() const;
};

/// The text of state.json. Its first line holds the SHA-256 of all the rest, so that a change of any byte shows.
/// Infinite and NaN numbers, which JSON lacks, are written as {"$float": "inf"}. Throws Error for what cannot be
/// written.
std::string to_text(const CheckpointState& state);

/// Throws DataError where the text is damaged, or newer than this program.
CheckpointState parse_checkpoint_state(const std::string& text);

}  // namespace trainrun
