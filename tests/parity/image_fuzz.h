#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "registry/sample_draws.h"

namespace trainrun {

/// Changes a few bytes of a file: one bit, a number, a piece cut out, doubled, or taken from the other file.
void change_file(std::string& file, const std::string& other, RandomStream& random);

struct FuzzResult {
  int64_t decoded = 0;
  int64_t refused = 0;
};

/// Decodes `rounds` files that are made of the given contents by random changes: bytes changed, cut out, doubled, or
/// taken from another one. Each is to be decoded, or refused with DataError: whatever else is thrown comes out of here,
/// and a sanitizer that the program was built with sees what goes wrong within.
FuzzResult fuzz_images(const std::vector<std::string>& contents, int64_t rounds, uint64_t seed);

/// The same of the headers and labels of shards; one that is read has all its images within the file.
FuzzResult fuzz_shards(const std::vector<std::string>& contents, int64_t rounds, uint64_t seed);

}  // namespace trainrun
