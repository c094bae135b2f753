#pragma once

#include <string>
#include <vector>

namespace trainrun {

/// The files that `patterns` name, in their order: photos-{0000..0009}.tar, {a,b}.tar; what *, ? and [ ] stand for, and **
/// (folders in folders, or none), in the order of the names. What is, as it stands, the name of a file means that file.
/// Throws DataError, which begins with `reader`, where a pattern names none.
std::vector<std::string> matching_paths(const std::vector<std::string>& patterns, const std::string& reader);

/// "1 of 2 files has no rows: rows-0001.parquet": of `num_files`, those that are `empty`; "" where none is. `what`: "rows".
std::string note_on_empty_files(const std::vector<std::string>& empty, size_t num_files, const std::string& what);

}  // namespace trainrun
