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

/// The files of the repository that the URL names.
std::vector<std::string> files_of(const HubRepository& repository, const HubUrl& url) {
  std::vector<std::string> found;
  for (const std::string& file : repository.files()) {
    if (file == url.file || matches_glob(url.file, file)) found.push_back(file);
  }
  if (found.empty()) {
    throw DataError(repository.name().text() + ": has no file " + url.file + suggestion(url.file, repository.files()));
  }
  return found;
}

}  // namespace

bool is_hub_url(const std::string& path) { return path.starts_with(kScheme); }

HubUrl parse_hub_url(const std::string& url) {
  const std::string expected = url + ": expected hf://datasets/ORG/NAME/FILE or hf://datasets/ORG/NAME@REVISION/FILE";
  if (!url.starts_with(kDatasets)) throw DataError(expected);
  std::string rest = url.substr(kDatasets.size());
  std::string id = take_part(rest);
  const size_t at = rest.find('@');
  const bool has_revision = at < rest.find('/');
  id += "/" + (has_revision ? rest.substr(0, at) : take_part(rest));
  if (has_revision) {
    rest.erase(0, at + 1);
    id += "@" + take_revision(rest);
  }
  const auto name = hub_name_of(id, HubKind::kDataset);
  if (!name || rest.empty()) throw DataError(expected);
  if (!is_repository_path(rest)) throw DataError(url + ": " + rest + " is not a path of a file in a repository");
  if (rest.find("**") != std::string::npos) {
    throw DataError(url + ": ** is not read here; write a list of patterns with *, or type: HubDataset with files");
  }
  return {*name, rest};
}

std::string local_path(const std::string& url) {
  const HubUrl parsed = parse_hub_url(url);
  const HubRepository repository = HubRepository::open(parsed.name);
  repository.fetch(files_of(repository, parsed));
  return repository.path(parsed.file);
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
