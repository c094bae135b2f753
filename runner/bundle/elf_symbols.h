#pragma once

#include <cstddef>

namespace trainrun {

/// Fills with zeros what only debuggers and linkers read of an ELF file in memory: the table of its local symbols, their
/// names, debug information. Nothing moves, so that every other byte keeps its meaning; of LibTorch's 451 MB these are 93.
/// What is no such file of this machine's kind is left as it is.
void clear_symbols(char* file, size_t bytes);

}  // namespace trainrun
