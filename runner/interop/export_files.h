#pragma once

#include <nlohmann/json.hpp>

#include <filesystem>
#include <string>

#include "registry/formats/files/file_io.h"

namespace trainrun {

/// Writes a file of settings as Hugging Face's libraries do.
template <class Json>
void write_json_file(const std::filesystem::path& path, const Json& content) {
  constexpr int kIndent = 2;
  write_file_atomically(path.string(), content.dump(kIndent) + "\n");
}

/// A folder that appears whole or not at all: its files are written beside it.
class NewFolder {
 public:
  explicit NewFolder(const std::string& path);
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  /// Where the files are to be written.
  const std::filesystem::path& path() const { return beside_; }
  /// Gives it its name. Throws FileError.
  void finish();

 private:
  std::filesystem::path final_;
  std::filesystem::path beside_;
};

}  // namespace trainrun
