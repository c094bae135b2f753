#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace trainrun {

/// Whether a file of this name is an image that can be read, by its extension.
bool is_image_name(const std::filesystem::path& path);
/// The images below `folder`: those of each folder in the order of their names, folders in the order of their paths.
/// Throws filesystem_error.
std::vector<std::string> images_below(const std::filesystem::path& folder);

}  // namespace trainrun
