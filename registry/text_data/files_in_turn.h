#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "registry/kinds/unlabelled_data.h"

namespace trainrun {

/// A file of data without labels, which is read whole.
struct FileInTurn {
  std::string path;
  std::shared_ptr<Dataset> data;  // closed
  /// What stands beside the samples from `first` on, once the data are open.
  std::function<std::vector<ValueColumn>(int64_t first)> beside;
};

/// One file after the other; of several, each sample's `file` stands beside it, too.
std::unique_ptr<UnlabelledData> files_in_turn(const UnlabelledSource& source, std::vector<FileInTurn> files);

}  // namespace trainrun
