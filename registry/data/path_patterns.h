#pragma once

#include <string>
#include <vector>

namespace trainrun {

/// The files that `patterns` name, in their order: photos-{0000..0009}.tar, {a,b}.tar; what *, ? and [ ] stand for, and **
/// (folders in folders, or none), in the order of the names. What is, as it stands, the name of a file means that file.
/// Throws DataError, which begins with `reader`, where a pattern names none.
std::vector<std::string> matching_paths(const std::vector<std::string>& patterns, const std::string& reader);

}  // namespace trainrun
