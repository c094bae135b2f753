#include "runner/run/resume_path.h"

#include <filesystem>

#include "registry/language/error.h"
#include "runner/run/checkpoint_store.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;

bool is_run(const fs::path& path) {
  std::error_code unreadable;
  return fs::exists(path / "recipe.yaml", unreadable) && !fs::exists(path / "model.safetensors", unreadable);
}

}  // namespace

std::string checkpoint_to_go_on_from(const std::string& path, const std::function<void(const std::string&)>& warn) {
  if (!is_run(path)) return path;
  const fs::path checkpoints = fs::path(path) / "checkpoints";
  const auto newest = CheckpointStore::find_newest(checkpoints.string(), warn);
  if (!newest) throw Error("checkpoint.resume: the run in " + path + " has no complete checkpoint");
  return *newest;
}

bool may_go_on(const std::string& folder, const std::string& resume) {
  if (resume != "auto") return resume != "no";
  const auto exists = [](const fs::path& path) {
    std::error_code unreadable;
    return fs::exists(path, unreadable);
  };
  fs::path run = folder;
  for (int number = 2; exists(run); ++number) {  // as RunFolder names those beside it
    if (exists(run / "checkpoints/latest") && !exists(run / "summary.json")) return true;
    run = folder + "-" + std::to_string(number);
  }
  return false;
}

std::string way_to_go_on(const std::string& folder) {
  std::error_code unreadable;
  const bool has_any = fs::exists(fs::path(folder) / "checkpoints/latest", unreadable);
  return has_any ? "; to go on from where it ended, add checkpoint.resume=" + folder : "";
}

}  // namespace trainrun
