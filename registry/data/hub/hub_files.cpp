#include "registry/data/hub/hub_files.h"

#include <algorithm>
#include <filesystem>

#include "registry/formats/files/file_io.h"
#include "registry/formats/web/hub_repository.h"
#include "registry/formats/web/near_paths.h"
#include "registry/language/error.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCard = "README.md";

DatasetCard card_at(const std::string& path) {
  constexpr uint64_t kMostBytes = 16 << 20;
  return read_card(read_file(path, kMostBytes), path);
}

HubFiles files_of_folder(const HubQuery& query) {
  if (query.revision) {
    throw DataError(query.path + ": is a folder of this machine, which has no revision " + *query.revision +
                    "; leave revision out, or give the folder another name");
  }
  HubFiles found;
  found.source = query.path;
  std::vector<std::string> files;
  const auto options = fs::directory_options::follow_directory_symlink;
  for (auto entry = fs::recursive_directory_iterator(query.path, options); entry != fs::recursive_directory_iterator();
       ++entry) {
    const bool is_hidden = entry->path().filename().string().starts_with('.');
    if (is_hidden && entry->is_directory()) entry.disable_recursion_pending();
    if (!is_hidden && entry->is_regular_file()) files.push_back(entry->path().lexically_relative(query.path).string());
  }
  if (std::ranges::find(files, kCard) != files.end()) {
    found.card_path = (fs::path(query.path) / kCard).string();
    found.card = card_at(found.card_path);
  }
  found.split = find_split(files, found.card, query, query.path);
  for (const std::string& file : found.split.files) found.paths.push_back((fs::path(query.path) / file).string());
  return found;
}

/// What the query finds in a repository whose card is there, if it has one.
HubFiles files_of(const HubRepository& repository, const HubQuery& query) {
  HubFiles found;
  found.source = repository.name().id + "@" + repository.commit();
  found.is_listed = repository.is_listed();
  if (repository.has(kCard)) {
    found.card_path = repository.path(kCard);
    found.card = card_at(found.card_path);
  }
  found.split = find_split(repository.files(), found.card, query, repository.name().text());
  const std::string missing = query.files || found.is_listed ? "" : missing_shard(found.split.files);
  if (!missing.empty()) {
    throw DataError(repository.name().text() + ": the cache (" + repository.snapshot() + ") has a part of the split " +
                    found.split.split + ": " + missing + " is not there; allow the network, so that it can be fetched");
  }
  for (const std::string& file : found.split.files) found.paths.push_back(repository.path(file));
  return found;
}

}  // namespace

bool HubQuery::is_folder() const {
  std::error_code unreachable;
  return fs::is_directory(path, unreachable);
}

HubName HubQuery::name() const {
  auto found = hub_name_of(path, HubKind::kDataset);
  if (!found) {
    throw DataError(path +
                    ": expected the name of a data set on Hugging Face's hub, org/name or org/name@revision, or a "
                    "folder that is there" +
                    near_path_hint(path));
  }
  if (revision) found->revision = *revision;
  return *found;
}

HubFiles hub_files(const HubQuery& query) {
  if (query.is_folder()) return files_of_folder(query);
  const HubRepository repository = HubRepository::open(query.name());
  if (repository.has(kCard)) repository.fetch({kCard});
  HubFiles found = files_of(repository, query);
  repository.fetch(found.split.files);
  return found;
}

std::optional<NamedSource> source_of_dataset(const HubQuery& query) {
  if (query.is_folder()) return std::nullopt;
  const HubName name = query.name();
  const auto repository = HubRepository::in_cache(name);
  if (repository && (!repository->has(kCard) || repository->is_here(kCard))) {
    const HubFiles found = files_of(*repository, query);
    const bool is_whole =
        std::ranges::all_of(found.split.files, [&](const auto& file) { return repository->is_here(file); });
    if (is_whole) return NamedSource{name.text() + " is in the cache: " + repository->snapshot(), true, true};
  }
  return NamedSource{not_in_cache_text(name), false, false};
}

}  // namespace trainrun
