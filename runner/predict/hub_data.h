#pragma once

#include <optional>
#include <string>
#include <vector>

namespace trainrun {

/// Which rows of a data set that DATA names by its repository; null where the user did not say.
struct HubRows {
  std::optional<std::string> split;
  std::optional<std::string> config;
};

/// DATA as it lies on this machine.
struct LocalData {
  std::vector<std::string> paths;
  std::vector<std::string> notes;  // what a user should know of it
};

/// Has the files of this machine in the place of what `data` names on Hugging Face's hub: a file, a folder, a pattern
/// (hub_urls.h), or, hf://datasets/ORG/NAME, a data set, whose split's files are found as type: HubDataset finds them. They
/// are fetched unless the cache has them. What is not of the hub stays as it is. Throws Error, or DataError.
LocalData local_data(const std::vector<std::string>& data, const HubRows& rows);

}  // namespace trainrun
