#include "registry/formats/text/jinja/search.h"

#include <cstring>
#include <vector>

namespace trainrun::jinja {

size_t find_text(std::string_view text, std::string_view what, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  const void* found = memmem(text.data() + from, text.size() - from, what.data(), what.size());
  return found ? static_cast<size_t>(static_cast<const char*>(found) - text.data()) : std::string_view::npos;
}

/// Source: Knuth, Morris, Pratt 1977, "Fast pattern matching in strings"; here from the end.
size_t rfind_text(std::string_view text, std::string_view what) {
  if (what.size() > text.size()) return std::string_view::npos;
  if (what.empty()) return text.size();
  const auto from_end = [](std::string_view of, size_t i) { return of[of.size() - 1 - i]; };
  std::vector<size_t> again(
      what.size());  // how much of `what` has been seen still where the next character does not fit
  for (size_t i = 1, seen = 0; i < what.size(); ++i) {
    while (seen > 0 && from_end(what, i) != from_end(what, seen)) seen = again[seen - 1];
    if (from_end(what, i) == from_end(what, seen)) ++seen;
    again[i] = seen;
  }
  for (size_t i = 0, seen = 0; i < text.size(); ++i) {
    while (seen > 0 && from_end(text, i) != from_end(what, seen)) seen = again[seen - 1];
    if (from_end(text, i) == from_end(what, seen)) ++seen;
    if (seen == what.size()) return text.size() - 1 - i;
  }
  return std::string_view::npos;
}

}  // namespace trainrun::jinja
