#include "registry/text_data/first_rows.h"

#include <filesystem>

#include "registry/data/path_patterns.h"

namespace trainrun {

void look_at_first_rows(const std::string& path, const std::function<void(const std::function<void()>& count)>& read) {
  std::error_code unreadable;
  if (!std::filesystem::is_regular_file(path, unreadable)) return;
  int64_t rows = 0;
  try {
    read([&rows] {
      if (++rows == kFirstRows) throw EnoughRows();
    });
  } catch (const EnoughRows&) {
    return;  // all were well
  }
}

std::string note_on_empty_files(
    const std::vector<std::string>& paths, const std::string& what,
    const std::function<void(const std::string& path, const std::function<void()>& count)>& read) {
  std::vector<std::string> empty;
  for (const std::string& path : paths.size() > 1 ? paths : std::vector<std::string>()) {
    try {
      read(path, [] { throw EnoughRows(); });
      empty.push_back(path);
    } catch (const EnoughRows&) {
      continue;
    }
  }
  return note_on_empty_files(empty, paths.size(), what);
}

}  // namespace trainrun
