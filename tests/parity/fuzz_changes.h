#pragma once

#include <string>
#include <vector>

#include "registry/kinds/sample_draws.h"

namespace trainrun {

/// A file as it should be, of which changed ones are made.
struct FuzzSeed {
  std::string name;     // of the file; its ending says what is in it
  std::string content;  // its bytes
  std::string place;    // the path at which a reader finds it; "": the changed file is read where it was written
};

/// The content of `seed` with one to four random changes: bytes changed, cut out, doubled, repeated many times, taken
/// from `other`; numbers that readers find hard; brackets that lie deep in each other; one of `words`. In files whose
/// names end with .json or .jsonl values are changed as well, and what ends with .gz is mostly changed within.
std::string changed(const FuzzSeed& seed, const FuzzSeed& other, const std::vector<std::string>& words,
                    RandomStream& random);

/// Make the checksums of a changed file right, as far as their places can be found: of a PNG's chunks; of the headers
/// of a tar archive; a zip archive's, which are removed; a checkpoint's state.json's own; a cache's of tokens.
void mend_png(std::string& content);
void mend_tar(std::string& content);
void mend_zip(std::string& content);
void mend_checkpoint_state(std::string& content);
void mend_token_cache(std::string& content);

}  // namespace trainrun
