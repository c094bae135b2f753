#include "registry/data/published_file.h"

#include <filesystem>

#include "registry/data/data_cache.h"
#include "registry/data/data_file.h"
#include "registry/language/error.h"

namespace trainrun {

std::string fetch_published(const PublishedFile& file, const std::vector<std::string>& mirrors, const std::string& root,
                            const std::string& folder) {
  Download job;
  for (const std::string& mirror : mirrors) {
    job.urls.push_back(mirror + (mirror.ends_with('/') ? "" : "/") + file.name);
  }
  job.destination = (std::filesystem::path(root) / file.name).string();
  job.verify = [&file](const std::string& path) {
    if (md5_of_file(path) == file.archive_md5) return;
    if (file.content_md5[0] && md5_of_content(path) == file.content_md5) return;
    throw DataError("the server did not send the published " + std::string(file.name) + " (its MD5 differs)");
  };
  return download_shared(job, folder + "/" + file.name);
}

}  // namespace trainrun
