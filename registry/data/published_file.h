#pragma once

#include <string>
#include <vector>

namespace trainrun {

/// A file that data sets are published as: MD5 of the file, as torchvision knows it; and of its content unpacked, where
/// that is known, so that a mirror which compressed it anew serves too ("" where it is not).
struct PublishedFile {
  const char* name;
  const char* archive_md5;
  const char* content_md5;
};

/// The path of the file in `root`, to which it is fetched from the first of the mirrors (URLs of folders) that has it,
/// by way of `folder` in the cache that all recipes share. Throws DataError with what went wrong at each.
std::string fetch_published(const PublishedFile& file, const std::vector<std::string>& mirrors, const std::string& root,
                            const std::string& folder);

}  // namespace trainrun
