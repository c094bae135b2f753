#pragma once

#include <string>
#include <string_view>

namespace trainrun {

/// Whether the path of a repository's file matches a pattern, as fsspec's glob has it: * and ? stand for anything but a
/// slash, [ab] and [!a-c] for one character, ** for anything, and **/ also for nothing. The time is bounded by the
/// product of both lengths.
bool matches_glob(std::string_view pattern, std::string_view path);

/// Whether a text has such characters.
bool is_glob(std::string_view text);

/// Whether ** stands for folders wherever the pattern has it, as fsspec wants it: a/**/b or a/**, not a/b**.
bool has_whole_folders(std::string_view pattern);

/// Whether the path is of a file or in a folder that is called .something, which no pattern takes unless it has a dot
/// there, too.
bool is_hidden_from(std::string_view pattern, std::string_view path);

}  // namespace trainrun
