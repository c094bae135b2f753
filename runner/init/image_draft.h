#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runner/init/draft.h"
#include "runner/init/table_draft.h"

namespace trainrun {

/// A folder with a folder of images for each class, perhaps below folders such as `train` and `test`.
struct ImageFolders {
  std::string train;                      // holds the classes' folders
  std::string eval;                       // "": a part of `train` is held out
  std::string test;                       // "": there is none, or `eval` is it
  std::map<std::string, int64_t> counts;  // of images of each class of `train`
  int64_t eval_images = 0;
  std::vector<std::string> files;  // of `train`
  int64_t unreadable = 0;          // by their names
};

/// The layers of a net for small pictures of `side` by `side` pixels; `first` come before them.
std::string picture_layers(int64_t side, int64_t outputs, const std::string& outputs_comment,
                           const std::string& first = "");

/// Nothing where `folder` holds no folders of images.
std::optional<ImageFolders> find_image_folders(const std::string& folder);

Draft draft_image_folders(const ImageFolders& folders, const InitOptions& options);
/// The folder at which the paths in a table's column begin: its own or, as in much published data, one beside it.
std::string root_of_images(const std::string& table, const std::string& image);
/// Whether any of the images that a table's column names is there.
bool names_images(const TableSight& table, const std::string& image);
/// Of a table with a column of the paths of images.
Draft draft_image_table(const TableSight& table, const std::string& image, const TableTarget& target,
                        const TableFiles& files, const InitOptions& options);

}  // namespace trainrun
