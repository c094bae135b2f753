#pragma once

#include <string>

namespace trainrun {

/// The name that git gives to a file's content: SHA-1 of "blob SIZE\0" and the bytes, 40 lower-case hexadecimal digits.
/// For telling a damaged file; no protection against malice. Throws DataError where the file cannot be read.
std::string git_blob_sha1(const std::string& path);

}  // namespace trainrun
