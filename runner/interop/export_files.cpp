#include "runner/interop/export_files.h"

#include "registry/language/error.h"

namespace trainrun {

namespace fs = std::filesystem;

NewFolder::NewFolder(const std::string& path) : final_(fs::path(path).lexically_normal()) {
  if (!final_.has_filename()) final_ = final_.parent_path();  // "out/"
  beside_ = final_.parent_path() / ("." + final_.filename().string() + ".incomplete");
  fs::remove_all(beside_);  // of an export that was killed
  create_folders(beside_.string());
}

NewFolder::~NewFolder() {
  std::error_code ignored;  // it is left where it cannot be removed, and the next export tries again
  fs::remove_all(beside_, ignored);
}

void NewFolder::finish() {
  std::error_code error;
  fs::rename(beside_, final_, error);
  if (error) throw FileError(final_.string(), "rename", error.value());
}

}  // namespace trainrun
