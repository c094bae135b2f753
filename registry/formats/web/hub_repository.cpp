#include "registry/formats/web/hub_repository.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>

#include "registry/formats/files/file_io.h"
#include "registry/formats/files/json_depth.h"
#include "registry/formats/web/near_paths.h"
#include "registry/formats/web/network.h"
#include "registry/formats/web/require_network.h"
#include "registry/language/error.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

bool path_exists(const std::string& path) {
  std::error_code unreachable;
  return fs::exists(path, unreachable);
}

/// The files of a commit as the cache has them listed; nothing where it does not, or in another format.
std::optional<std::vector<std::string>> listed_files(const std::string& path) {
  constexpr uint64_t kMostBytes = 64 << 20;
  constexpr int kDeepest = 8;
  if (!path_exists(path)) return std::nullopt;
  const std::string text = read_file(path, kMostBytes);
  check_json_depth(text, kDeepest, path);
  const json tree = json::parse(text, nullptr, /*allow_exceptions=*/false);
  const json files =
      tree.is_object() && tree.value("format_version", json()) == 1 ? tree.value("files", json()) : json();
  if (!files.is_object()) return std::nullopt;
  std::vector<std::string> names;
  for (const auto& [name, unused] : files.items()) {
    if (is_repository_path(name)) names.push_back(name);
  }
  return names;
}

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_directory()) files.push_back(entry.path().lexically_relative(folder).string());
  }
  std::ranges::sort(files);
  return files;
}

}  // namespace

HubRepository::HubRepository(HubName name, HubListing listing, bool is_listed)
    : name_(std::move(name)), cache_(name_), listing_(std::move(listing)), is_listed_(is_listed) {}

std::optional<HubRepository> HubRepository::in_cache(const HubName& name) {
  if (hub_cache_folder().empty()) return std::nullopt;
  const HubCache cache(name);
  const auto commit = cache.commit();
  if (!commit) return std::nullopt;
  if (auto files = listed_files(cache.tree(*commit)))
    return HubRepository(name, {*commit, std::move(*files), ""}, true);
  if (!path_exists(cache.snapshot(*commit))) return std::nullopt;
  return HubRepository(name, {*commit, files_in(cache.snapshot(*commit)), ""}, false);
}

HubRepository HubRepository::open(const HubName& name) {
  auto cached = in_cache(name);
  const bool may_ask = network_is_allowed() && offline_variable(name.kind).empty();
  if (cached && (cached->is_listed() || !may_ask)) return std::move(*cached);
  require_network(name.text(), name.text(), hub_page(name), name.kind);
  HubName wanted = name;
  if (cached) wanted.revision = cached->commit();  // what the cache lacks of it, not what is newer
  HubListing listing = with_near_path(name.text(), [&] { return list_hub_files(wanted); });
  const HubCache cache(name);
  if (!listing.tree.empty()) {
    const std::string path = cache.tree(listing.commit);
    create_folders(fs::path(path).parent_path().string());
    write_file_atomically(path, listing.tree);
  }
  return {name, std::move(listing), true};
}

std::string HubRepository::path(const std::string& file) const { return snapshot() + "/" + file; }

bool HubRepository::is_here(const std::string& file) const { return path_exists(path(file)); }

void HubRepository::fetch(const std::vector<std::string>& files) const {
  for (const std::string& file : files) {
    if (is_here(file)) continue;
    require_network(name_.text(), name_.text() + ": " + file, hub_page(name_), name_.kind);
    fetch_hub_file(name_, cache_, listing_, file);
  }
  cache_.set_commit(listing_.commit);
}

}  // namespace trainrun
