#pragma once

#include <cstddef>
#include <string>

namespace trainrun {

/// Unpacks a whole gzip file at once, in half the time that DataFile takes, where it is one member of exactly `size` bytes.
/// False for every other file, damaged ones too, of which DataFile says what they are; what is then in `data` means
/// nothing. Throws DataError where the file cannot be read.
bool unpack_whole(const std::string& path, void* data, size_t size);

}  // namespace trainrun
