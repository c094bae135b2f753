#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "tests/parity/fuzz_changes.h"

namespace trainrun {

/// What a reader is given in one round.
struct FuzzedFile {
  std::string path;     // of the changed file, or the seed's place, which then leads to it
  std::string content;  // its bytes
  size_t seed = 0;      // the number of the seed that it was made of
};

/// A reader of files that may come from strangers.
struct FuzzedReader {
  std::string name;
  /// Reads the file, and uses what it read. Throws where the file is refused.
  std::function<void(const FuzzedFile&)> read;
  /// Whether this is how a file is refused. Empty: as DataError.
  std::function<bool(const std::exception&)> refuses = {};
  /// Makes the checksums of a changed file right, so that what was changed gets past them; three files of four are
  /// mended. Empty: nothing.
  std::function<void(std::string& content, const FuzzSeed& seed)> mend = {};
  std::vector<std::string> words = {};  // that the format knows, to be put in
  bool names_file = true;               // whether a refusal must name the file or its folder
  bool reads_seeds = true;              // whether the seeds themselves must be read
};

struct FuzzPlan {
  int64_t first = 0;      // round to begin with: each depends on the seed and its own number alone
  int64_t rounds = 4000;  // how many
  double seconds = 0;     // of the processor; if above 0, rounds go on until they have passed, however many these are
  uint64_t seed = 1;
  std::string folder;  // where the changed files are written, one at a time; those of findings stay there
};

struct FuzzResult {
  int64_t rounds = 0;
  int64_t read = 0;
  int64_t refused = 0;
  double most_seconds = 0;            // of the processor, for one file
  int64_t most_bytes = 0;             // of memory, for one file, beyond what was in use before it
  std::vector<std::string> findings;  // sentences: the round, what happened and where the file is; alike ones once
};

/// Reads files that are made of the seeds by random changes. Each is to be read, or refused, within 5 seconds of the
/// processor (50 under a sanitizer) and 1 GiB of memory; everything else is a finding. A file that takes 2 minutes (20)
/// ends the process by SIGPROF; it lies in the plan's folder, as does one that crashes it. Throws Error where a seed
/// itself is refused.
FuzzResult fuzz(const FuzzedReader& reader, const std::vector<FuzzSeed>& seeds, const FuzzPlan& plan);

}  // namespace trainrun
