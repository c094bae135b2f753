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
  std::vector<std::string> files;   // of `train`
  std::vector<std::string> unread;  // for each image whose format is not read, of all folders: its path, and why
};

/// The layers of a net for small pictures of `side` by `side` pixels; `first` come before them.
std::string picture_layers(int64_t side, int64_t outputs, const std::string& outputs_comment,
                           const std::string& first = "");

/// Nothing where `folder` holds no folders of images.
std::optional<ImageFolders> find_image_folders(const std::string& folder);

Draft draft_image_folders(const ImageFolders& folders, const InitOptions& options);

/// The images that a table's column names.
struct NamedImages {
  std::string root;                // the folder at which their paths begin: the table's own or, as in much published
                                   // data, one beside it
  std::vector<std::string> paths;  // of those that are there
};
NamedImages find_named_images(const std::string& table, const ColumnSight& image);
/// Of a table with a column of the paths of images. `evaluated`: the table at `files.eval`; null: there is none.
Draft draft_image_table(const TableSight& table, const TableSight* evaluated, const std::string& image,
                        const TableTarget& target, const TableFiles& files, const InitOptions& options);

}  // namespace trainrun
