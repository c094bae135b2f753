#include "registry/language/figure_name.h"

#include <cctype>

namespace trainrun {

std::string figure_name(const std::string& type, const std::optional<std::string>& name) {
  if (name) return *name;
  const auto upper = [&](size_t i) { return i < type.size() && std::isupper(static_cast<unsigned char>(type[i])); };
  const auto lower = [&](size_t i) { return i < type.size() && std::islower(static_cast<unsigned char>(type[i])); };
  std::string snake;
  for (size_t i = 0; i < type.size(); ++i) {
    const bool starts_word = i > 0 && upper(i) && (!upper(i - 1) || lower(i + 1));
    if (starts_word) snake += '_';
    snake += static_cast<char>(std::tolower(static_cast<unsigned char>(type[i])));
  }
  return snake;
}

}  // namespace trainrun
