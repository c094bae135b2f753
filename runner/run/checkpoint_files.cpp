#include "runner/run/checkpoint_files.h"

#include <filesystem>
#include <map>
#include <memory>
#include <utility>

#include "registry/formats/files/file_io.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kOptimizerFile = "optimizer.safetensors";

std::string file_of(const std::string& folder, const std::string& name) { return (fs::path(folder) / name).string(); }

/// The two files of tensors, the model's while the optimizer's is still hashed, and both with it.
void write_files(const std::string& path, const CheckpointContent& content, std::map<std::string, FileDigest>& files) {
  const auto hashing = std::make_shared<HashThread>();
  FileWriter optimizer(file_of(path, kOptimizerFile), hashing);
  write_safetensors(optimizer, content.optimizer);
  FileWriter model(file_of(path, kModelFile), hashing);
  write_safetensors(model, content.model);
  files[kModelFile] = model.finish();
  files[kOptimizerFile] = optimizer.finish();
}

[[noreturn]] void throw_mismatch(const std::string& file, const FileDigest& expected, const FileDigest& found) {
  throw CheckpointError(file + ": is damaged: expected SHA-256 " + expected.sha256 + " (" +
                        std::to_string(expected.bytes) + " bytes), found " + found.sha256 + " (" +
                        std::to_string(found.bytes) + " bytes); resume from another checkpoint");
}

/// `path` is the checkpoint's; `name` that of one of its files.
void verify_file(const std::string& path, const std::string& name, const FileDigest& expected) {
  const std::string file = file_of(path, name);
  FileDigest found;
  try {
    found = digest_file(file);
  } catch (const ReadError& error) {
    if (!error.is_missing()) throw_unusable(path, error.what());
    throw CheckpointError(error.what());
  } catch (const DataError& error) {
    throw CheckpointError(error.what());
  }
  if (found != expected) throw_mismatch(file, expected, found);
}

NamedTensors read_tensors(const std::string& path, const CheckpointState& state, const char* name) {
  const std::string file = file_of(path, name);
  const auto expected = state.files.find(name);
  if (expected == state.files.end()) throw CheckpointError(file_of(path, kStateFile) + ": names no file " + name);
  SafetensorsContent content;
  try {
    content = read_safetensors(file, FileReader::Hashing::kOn);
  } catch (const DataError& error) {
    const auto* refused = dynamic_cast<const ReadError*>(&error);
    if (refused && !refused->is_missing()) throw_unusable(path, error.what());
    verify_file(path, name, expected->second);  // says that it is damaged, if that is why
    throw CheckpointError(error.what());
  }
  if (content.digest != expected->second) throw_mismatch(file, expected->second, content.digest);
  return std::move(content.tensors);
}

}  // namespace

void write_checkpoint(const std::string& path, const CheckpointContent& content, bool is_best) {
  std::error_code error;
  fs::create_directory(path, error);
  if (error) throw FileError(path, "create the folder", error.value());
  CheckpointState state{content.state, {}, is_best};
  write_files(path, content, state.files);
  FileWriter file(file_of(path, kStateFile));
  file.write(to_text(state));
  file.finish();
  sync_folder(path);
}

void throw_unusable(const std::string& path, const std::string& why) {
  throw UnusableCheckpoint(path + " cannot be used now, though it may be whole: " + why +
                           ". Nothing was changed; start again when it can be read, or move it out of its folder to go "
                           "on from an older checkpoint");
}

CheckpointState read_state(const std::string& path) {
  const std::string file = file_of(path, kStateFile);
  try {
    return parse_checkpoint_state(read_file(file, kMostStateBytes));
  } catch (const ReadError& error) {
    if (!error.is_missing()) throw_unusable(path, error.what());
    throw CheckpointError(path + ": is not a whole checkpoint: " + error.what());
  } catch (const NewerFormatError& error) {
    throw_unusable(path, error.what());
  } catch (const DataError& error) {
    throw CheckpointError(path + ": is not a whole checkpoint: " + error.what());
  }
}

void verify_files(const std::string& path, const CheckpointState& state) {
  for (const auto& [name, expected] : state.files) verify_file(path, name, expected);
}

CheckpointContent read_checkpoint(const std::string& path) {
  CheckpointState state = read_state(path);
  NamedTensors model = read_tensors(path, state, kModelFile);
  NamedTensors optimizer = read_tensors(path, state, kOptimizerFile);
  return {std::move(model), std::move(optimizer), std::move(state.content)};
}

}  // namespace trainrun
