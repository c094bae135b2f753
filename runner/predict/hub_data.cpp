#include "runner/predict/hub_data.h"

#include "registry/data/hub/hub_files.h"
#include "registry/data/hub/hub_urls.h"
#include "registry/language/error.h"

namespace trainrun {
namespace {

void add_split(const std::string& url, const HubName& name, const HubRows& rows, LocalData& local) {
  if (!rows.split) {
    throw Error("predict: " + url + " is a data set; say which of its splits: --split test; or name a file of it");
  }
  HubQuery query;
  query.path = name.id;
  query.revision = name.revision;
  query.split = rows.split;
  query.config = rows.config;
  const HubFiles found = hub_files(query);
  local.paths.insert(local.paths.end(), found.paths.begin(), found.paths.end());
  if (!found.split.unread.empty()) {
    local.notes.push_back(found.card_path + ": what it says of the config " + found.split.config + " in " +
                          join(found.split.unread) + " is not heeded");
  }
  if (!found.is_listed) {
    local.notes.push_back(url + ": the split " + found.split.split + " is read from " +
                          std::to_string(found.paths.size()) +
                          " file(s) that the cache has; whether the hub has more was not asked");
  }
}

}  // namespace

LocalData local_data(const std::vector<std::string>& data, const HubRows& rows) {
  LocalData local;
  bool has_set = false;
  for (const std::string& path : data) {
    if (!is_hub_url(path)) {
      local.paths.push_back(path);
      continue;
    }
    const HubUrl url = parse_hub_url(path);
    if (url.file.empty()) {
      has_set = true;
      add_split(path, url.name, rows, local);
    } else {
      const std::vector<std::string> files = local_paths(path);
      local.paths.insert(local.paths.end(), files.begin(), files.end());
    }
  }
  if (!has_set && (rows.split || rows.config)) {
    throw Error(std::string("predict: ") + (rows.split ? "--split" : "--config") +
                " chooses among the rows of a data set of Hugging Face's hub; name one as DATA: "
                "hf://datasets/ORG/NAME");
  }
  return local;
}

}  // namespace trainrun
