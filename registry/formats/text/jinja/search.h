#pragma once

#include <cstddef>
#include <string_view>

namespace trainrun::jinja {

/// The place of the first `what`, not before `from`, or npos; in time that grows with the texts' lengths, not with their
/// product.
size_t find_text(std::string_view text, std::string_view what, size_t from = 0);
/// The place of the last one. Takes 8 bytes of memory for each of `what`.
size_t rfind_text(std::string_view text, std::string_view what);

}  // namespace trainrun::jinja
