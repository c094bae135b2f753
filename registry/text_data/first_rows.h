#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <vector>

namespace trainrun {

/// How many rows tell whether a file has what the recipe names.
inline constexpr int64_t kFirstRows = 20;

/// Thrown by who takes the rows of a file once there were enough of them; caught by `look_at_first_rows`.
struct EnoughRows : std::exception {};

/// Calls `read`, which throws DataError where the file `path` is not what the recipe says, and is given what to call
/// after each row: `read` is ended after the first ones. Nothing is done where there is no such file: it is said when the
/// data are opened.
void look_at_first_rows(const std::string& path, const std::function<void(const std::function<void()>& count)>& read);

/// What to say of those of several files `paths` in which `read` finds nothing to call `count` for: of what their recipe
/// calls `what`; "" where there are none.
std::string note_on_empty_files(
    const std::vector<std::string>& paths, const std::string& what,
    const std::function<void(const std::string& path, const std::function<void()>& count)>& read);

}  // namespace trainrun
