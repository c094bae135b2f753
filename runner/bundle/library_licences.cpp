#include "runner/bundle/library_licences.h"

#include <filesystem>
#include <fstream>
#include <set>

namespace trainrun {
namespace {

namespace fs = std::filesystem;

/// Adds the files below `folder` as NAME/FILE. Whether there were any.
bool add_files(const fs::path& folder, const std::string& name, std::map<std::string, std::string>& files) {
  std::error_code unreadable;
  bool any = false;
  for (const auto& entry : fs::recursive_directory_iterator(folder, unreadable)) {
    if (!entry.is_regular_file(unreadable)) continue;
    files[name + "/" + entry.path().lexically_relative(folder).string()] = entry.path().string();
    any = true;
  }
  return any;
}

/// Those of the Python packages beside which the library lies: of site-packages/torch/lib/libc10.so those in
/// site-packages/torch-2.11.0.dist-info, of trainrun.libs those of trainrun.
bool add_of_wheels(const fs::path& library, std::map<std::string, std::string>& files) {
  std::error_code unreadable;
  bool any = false;
  for (fs::path below = library.parent_path(); below.has_relative_path(); below = below.parent_path()) {
    const std::string package = below.filename().string();
    const std::string name = package.substr(0, package.find('.'));
    if (name.empty()) continue;
    for (const auto& entry : fs::directory_iterator(below.parent_path(), unreadable)) {
      const std::string info = entry.path().filename().string();
      const bool is_its = info.ends_with(".dist-info") && info.starts_with(name) && info.size() > name.size() &&
                          (info[name.size()] == '-' || info[name.size()] == '_');
      const std::string title = info.substr(0, info.size() - std::string(".dist-info").size() * (is_its ? 1 : 0));
      if (is_its) any = add_files(entry.path() / "licenses", title, files) || any;
    }
    if (any) break;
  }
  return any;
}

/// The names under which dpkg may know a file: /lib is a link to /usr/lib.
std::set<std::string> names_of(const std::string& path) {
  std::error_code gone;
  std::set<std::string> names = {path, fs::canonical(path, gone).string()};
  for (const std::string& name : std::set<std::string>(names)) {
    if (name.starts_with("/usr/")) names.insert(name.substr(4));
    if (name.starts_with("/lib")) names.insert("/usr" + name);
  }
  names.erase("");
  return names;
}

/// The notices of the Debian packages that own the libraries, which are taken out of `wanted`.
void add_of_debian(std::set<std::string>& wanted, std::map<std::string, std::string>& files) {
  std::map<std::string, std::string> by_name;
  for (const std::string& path : wanted) {
    for (const std::string& name : names_of(path)) by_name[name] = path;
  }
  std::error_code unreadable;
  for (const auto& entry : fs::directory_iterator("/var/lib/dpkg/info", unreadable)) {
    if (entry.path().extension() != ".list") continue;
    std::ifstream list(entry.path());
    for (std::string line; std::getline(list, line);) {
      const auto found = by_name.find(line);
      if (found == by_name.end()) continue;
      const std::string stem = entry.path().stem().string();  // "libcurl4:amd64"
      const std::string package = stem.substr(0, stem.find(':'));
      const fs::path notice = fs::path("/usr/share/doc") / package / "copyright";
      if (!fs::is_regular_file(notice, unreadable)) continue;
      files[package + "/copyright"] = notice.string();
      wanted.erase(found->second);
    }
  }
}

}  // namespace

LibraryLicences licences_of(const std::vector<std::string>& libraries) {
  LibraryLicences licences;
  std::set<std::string> of_system;
  for (const std::string& library : libraries) {
    if (!add_of_wheels(fs::absolute(library).lexically_normal(), licences.files)) of_system.insert(library);
  }
  if (!of_system.empty()) add_of_debian(of_system, licences.files);
  licences.unknown.assign(of_system.begin(), of_system.end());
  return licences;
}

}  // namespace trainrun
