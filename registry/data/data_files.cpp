#include "registry/data/data_files.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "registry/language/error.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;

/// The folders of this library, of what a link to it stands for, and of the program.
std::vector<fs::path> code_folders() {
  std::vector<fs::path> folders;
  const auto add = [&](const fs::path& file) {
    const fs::path folder = file.parent_path();
    if (!folder.empty() && std::find(folders.begin(), folders.end(), folder) == folders.end())
      folders.push_back(folder);
  };
  std::error_code ignored;  // a path that cannot be resolved is one place less to look at
  Dl_info library;
  if (dladdr(reinterpret_cast<const void*>(&shipped_file), &library) != 0 && library.dli_fname) {
    add(fs::absolute(library.dli_fname, ignored));
    add(fs::canonical(library.dli_fname, ignored));
  }
  add(fs::read_symlink("/proc/self/exe", ignored));
  return folders;
}

/// Where a file that comes with trainrun may be.
std::vector<std::string> places_of(const std::string& name) {
  std::vector<std::string> places;
  for (const fs::path& folder : code_folders()) {
    for (const char* up : {"..", "../.."})  // ../.. for a library in lib/x86_64-linux-gnu
      places.push_back((folder / up / "share" / "trainrun" / name).lexically_normal().string());
  }
  return places;
}

}  // namespace

std::optional<std::string> find_shipped_file(const std::string& name) {
  for (const std::string& path : places_of(name)) {
    std::error_code unreadable;
    if (fs::is_regular_file(path, unreadable)) return path;
  }
  return std::nullopt;
}

std::string library_beside(const std::string& name) {
  Dl_info registry;
  if (dladdr(reinterpret_cast<const void*>(&shipped_file), &registry) == 0 || !registry.dli_fname) return name;
  std::error_code unresolved;
  const fs::path path = fs::canonical(registry.dli_fname, unresolved);
  return ((unresolved ? fs::path(registry.dli_fname) : path).parent_path() / name).string();
}

std::string shipped_file(const std::string& name) {
  if (const std::optional<std::string> path = find_shipped_file(name)) return *path;
  throw DataError("a file that comes with trainrun is missing: " + name + "; looked for " + join(places_of(name)));
}

}  // namespace trainrun
