#pragma once

#include "tests/parity/image_fuzz.h"

namespace trainrun {

/// Reads `rounds` Parquet and Arrow files that are made of the given contents by random changes, every row of every
/// column whose type is read. Whatever is thrown and is not a DataError comes out of here.
FuzzResult fuzz_arrow(const std::vector<std::string>& contents, int64_t rounds, uint64_t seed);

}  // namespace trainrun
