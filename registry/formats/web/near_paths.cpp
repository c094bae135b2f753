#include "registry/formats/web/near_paths.h"

#include <filesystem>
#include <vector>

namespace trainrun {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostEntries = 10'000;  // of a folder that are looked at

/// What is in the folder; nothing where it cannot be read.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code unreadable;
  for (fs::directory_iterator entry(folder, unreadable), end; !unreadable && entry != end;
       entry.increment(unreadable)) {
    if (names.size() == kMostEntries) break;
    names.push_back(entry->path().filename().string());
  }
  return names;
}

/// The entry of `folder` that is called `name`, or nearly so; "" for none.
std::string entry_like(const fs::path& folder, const std::string& name) {
  std::error_code unreachable;
  return fs::exists(folder / name, unreachable) ? name : nearest(name, names_in(folder));
}

}  // namespace

std::string near_path_hint(const std::string& named) {
  fs::path found;
  for (const fs::path& part : fs::path(named.substr(0, named.find('@')))) {
    const std::string entry = entry_like(found.empty() ? fs::path(".") : found, part.string());
    if (entry.empty()) return "";
    found /= entry;
  }
  return found.empty() ? "" : "; or did you mean the local path ./" + found.string() + ", which is there?";
}

}  // namespace trainrun
