#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <map>
#include <string>

#include "registry/formats/files/digest.h"
#include "registry/language/error.h"

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

/// A state.json that a newer trainrun wrote, and this one cannot judge.
class NewerFormatError : public DataError {
 public:
  using DataError::DataError;
};

/// What a JSON library's message says, without its "[json.exception.type_error.302] ".
std::string plain_message(const nlohmann::json::exception& error);

/// Throws NewerFormatError, naming both versions, or DataError where the text is damaged or not a checkpoint's.
CheckpointState parse_checkpoint_state(const std::string& text);

}  // namespace trainrun
