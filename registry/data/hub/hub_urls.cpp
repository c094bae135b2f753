#include "registry/data/hub/hub_urls.h"

#include <algorithm>
#include <vector>

#include "registry/data/hub/path_glob.h"
#include "registry/formats/web/hub_repository.h"
#include "registry/language/error.h"

namespace trainrun {
namespace {

constexpr std::string_view kScheme = "hf://";
constexpr std::string_view kDatasets = "hf://datasets/";

/// The part of `rest` up to the slash that ends it, which is taken from it.
std::string take_part(std::string& rest) {
  const size_t slash = std::min(rest.find('/'), rest.size());
  std::string part = rest.substr(0, slash);
  rest.erase(0, slash + 1);
  return part;
}

/// "refs/convert/parquet" and "refs/pr/1" have slashes of their own; others write %2F.
std::string take_revision(std::string& rest) {
  std::string revision = take_part(rest);
  if (revision == "refs") {
    revision += "/" + take_part(rest);
    revision += "/" + take_part(rest);
  }
  for (size_t at = revision.find("%2F"); at != std::string::npos; at = revision.find("%2F"))
    revision.replace(at, 3, "/");
  return revision;
}

/// The files of the repository that the URL names, in the order of their names.
std::vector<std::string> files_of(const HubRepository& repository, const HubUrl& url) {
  if (repository.has(url.file)) return {url.file};
  std::vector<std::string> found;
  for (const std::string& file : repository.files()) {
    const bool is_within = url.file.empty() || file.starts_with(url.file + "/");
    if (is_within || (matches_glob(url.file, file) && !is_hidden_from(url.file, file))) found.push_back(file);
  }
  if (found.empty()) {
    throw DataError(repository.name().text() + ": has no file " + url.file + suggestion(url.file, repository.files()));
  }
  std::ranges::sort(found);
  return found;
}

/// Throws where the cache holds what somebody fetched, and the URL names several files, of which it may lack some.
void require_listing(const HubRepository& repository, const HubUrl& url) {
  if (repository.is_listed() || repository.has(url.file)) return;
  throw DataError(repository.name().text() + ": the cache (" + repository.snapshot() +
                  ") does not tell whether it has all files of " + (url.file.empty() ? "the data set" : url.file) +
                  "; allow the network, so that the hub can be asked, or name the files one by one");
}

/// What the URL names, fetched.
std::vector<std::string> fetched_files(const HubRepository& repository, const HubUrl& url) {
  require_listing(repository, url);
  std::vector<std::string> files = files_of(repository, url);
  repository.fetch(files);
  return files;
}

}  // namespace

bool is_hub_url(const std::string& path) { return path.starts_with(kScheme); }

HubUrl parse_hub_url(const std::string& url) {
  const std::string expected = url + ": expected hf://datasets/ORG/NAME/FILE or hf://datasets/ORG/NAME@REVISION/FILE";
  if (!url.starts_with(kDatasets)) throw DataError(expected);
  std::string rest = url.substr(kDatasets.size());
  if (rest.ends_with('/')) rest.pop_back();
  std::string id = take_part(rest);
  const size_t at = rest.find('@');
  const bool has_revision = at < rest.find('/');
  id += "/" + (has_revision ? rest.substr(0, at) : take_part(rest));
  if (has_revision) {
    rest.erase(0, at + 1);
    id += "@" + take_revision(rest);
  }
  const auto name = hub_name_of(id, HubKind::kDataset);
  if (!name) throw DataError(expected);
  if (!rest.empty() && !is_repository_path(rest)) {
    throw DataError(url + ": " + rest + " is not a path of a file in a repository");
  }
  if (!has_whole_folders(rest)) {
    throw DataError(url + ": ** stands for folders, and for nothing beside them: write a/**/*.csv, or * for a name");
  }
  return {*name, rest};
}

std::string local_path(const std::string& url) {
  const HubUrl parsed = parse_hub_url(url);
  const HubRepository repository = HubRepository::open(parsed.name);
  fetched_files(repository, parsed);
  return parsed.file.empty() ? repository.snapshot() : repository.path(parsed.file);
}

std::vector<std::string> local_paths(const std::string& url) {
  const HubUrl parsed = parse_hub_url(url);
  const HubRepository repository = HubRepository::open(parsed.name);
  std::vector<std::string> files = fetched_files(repository, parsed);
  if (!is_glob(parsed.file) || repository.has(parsed.file)) {
    return {parsed.file.empty() ? repository.snapshot() : repository.path(parsed.file)};
  }
  for (std::string& file : files) file = repository.path(file);
  return files;
}

std::optional<HubUrl> url_of_cached(const std::string& path) {
  constexpr std::string_view kFolder = "/datasets--";
  constexpr std::string_view kSnapshots = "/snapshots/";
  const size_t snapshots = path.rfind(kSnapshots);
  const size_t folder = path.rfind(kFolder, snapshots);
  if (snapshots == std::string::npos || folder == std::string::npos) return std::nullopt;
  std::string id = path.substr(folder + kFolder.size(), snapshots - folder - kFolder.size());
  if (const size_t dashes = id.find("--"); dashes != std::string::npos) id.replace(dashes, 2, "/");
  std::string rest = path.substr(snapshots + kSnapshots.size());
  const std::string commit = take_part(rest);
  if (id.find('/') != id.rfind('/') || !is_commit(commit)) return std::nullopt;
  return HubUrl{{HubKind::kDataset, id, commit}, rest};
}

std::string url_text(const HubUrl& url) {
  return std::string(kDatasets) + url.name.text() + (url.file.empty() ? "" : "/" + url.file);
}

NamedSource source_of_hub_url(const std::string& url) {
  const HubUrl parsed = parse_hub_url(url);
  if (const auto repository = HubRepository::in_cache(parsed.name)) {
    const bool may_be_whole = repository->is_listed() || repository->has(parsed.file);
    const std::vector<std::string> files = may_be_whole ? files_of(*repository, parsed) : std::vector<std::string>();
    const bool are_here = std::ranges::all_of(files, [&](const auto& file) { return repository->is_here(file); });
    if (!files.empty() && are_here) {
      return {parsed.name.text() + " is in the cache: " + repository->path(parsed.file), true, true};
    }
  }
  return {not_in_cache_text(parsed.name), false, false};
}

}  // namespace trainrun
