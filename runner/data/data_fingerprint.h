#pragma once

#include <nlohmann/json.hpp>

#include <string>

#include "registry/kinds/dataset.h"

namespace trainrun {

/// What a data set holds, in brief, as checkpoints keep it: {"samples", "digest", "digested", "files"}. The digest is
/// the SHA-256 of all samples as the data set gives them, or, where they are many, of as many evenly spread ones as are
/// read quickly ("digested"). The files are those that the recipe names, with size in bytes and time of their last
/// change. `data` is open and has learnt. Throws what reading samples throws.
nlohmann::json fingerprint_of(const Dataset& data, const Component<DatasetKind>& component);

/// How two fingerprints of a data set differ.
struct DataDifference {
  std::string change;  // "it had 1000 samples and now has 350"; "" where nothing speaks for one
  std::string doubt;   // of what cannot be told: samples and sizes are equal, times are not; "" for none
};

/// Where all samples were digested, the digest alone decides, so that a copy with other times is the same data. Throws
/// nlohmann::json::exception where `saved` is not a fingerprint.
DataDifference compare_fingerprints(const nlohmann::json& saved, const nlohmann::json& now);

}  // namespace trainrun
