#include "registry/datasets/image_files.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

namespace trainrun {

namespace fs = std::filesystem;

namespace {

constexpr std::array kExtensions = {".jpg", ".jpeg", ".png", ".webp", ".bmp"};

}  // namespace

bool is_image_name(const fs::path& path) {
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return std::find(kExtensions.begin(), kExtensions.end(), extension) != kExtensions.end();
}

std::vector<std::string> images_below(const fs::path& folder) {
  std::vector<std::pair<std::string, std::string>> found;  // of its folder, of the file
  const auto options = fs::directory_options::follow_directory_symlink;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder, options)) {
    if (entry.is_regular_file() && is_image_name(entry.path())) {
      found.emplace_back(entry.path().parent_path().string(), entry.path().filename().string());
    }
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> paths;
  paths.reserve(found.size());
  for (const auto& [parent, name] : found) paths.push_back(parent + "/" + name);
  return paths;
}

}  // namespace trainrun
