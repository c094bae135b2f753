#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "registry/formats/files/digest.h"
#include "registry/formats/files/file_io.h"
#include "registry/tensors/named_tensors.h"

namespace trainrun {

using FileMetadata = std::map<std::string, std::string>;

/// Writes tensors of any device, strides and dtype that the format has, one after the other: no more than one of them
/// is copied at a time. The order is the format's own (wide dtypes first, then by name), so the same content gives the
/// same bytes, and the same as Python's `safetensors.torch.save_file` gives. Throws Error naming the tensor (no data, a
/// dtype the format lacks, a name twice) before anything is written, FileError where the disk fails.
void write_safetensors(FileWriter& file, const NamedTensors& tensors,
                       const FileMetadata& metadata = {{"format", "pt"}});
/// The same, in one instant (see write_file_atomically).
FileDigest write_safetensors(const std::string& path, const NamedTensors& tensors,
                             const FileMetadata& metadata = {{"format", "pt"}});

/// Whether `bytes`, the first 16 or more of a file, begin as a safetensors file does: a possible length, then a JSON
/// object. The length may be any number, and so look like what other formats begin with: ask this first.
bool begins_as_safetensors(std::string_view bytes);

/// A safetensors file whose header has been read and checked: each tensor is where, and as long, as its shape and dtype
/// say, and no byte of the file is without an owner. Everything wrong is a DataError that names file and tensor.
class SafetensorsFile {
 public:
  struct Entry {
    std::string name;
    at::ScalarType dtype;
    std::vector<int64_t> shape;
    uint64_t offset;  // in the file
    uint64_t bytes;
  };

  explicit SafetensorsFile(const std::string& path, FileReader::Hashing hashing = FileReader::Hashing::kOff);
  const std::vector<Entry>& entries() const { return entries_; }  // as they lie in the file
  const FileMetadata& metadata() const { return metadata_; }
  /// Reads one tensor into memory of its own. With hashing on: each once, in the order of the file.
  at::Tensor read(const Entry& entry);
  /// Of the whole file, once all of it was read with hashing on.
  FileDigest digest() { return file_.digest(); }

 private:
  FileReader file_;
  std::vector<Entry> entries_;
  FileMetadata metadata_;
};

struct SafetensorsContent {
  NamedTensors tensors;  // as they lie in the file
  FileMetadata metadata;
  FileDigest digest;  // empty if not asked for
};

/// Reads the whole file, each byte once; no more memory than the tensors take. Throws DataError.
SafetensorsContent read_safetensors(const std::string& path, FileReader::Hashing hashing = FileReader::Hashing::kOff);

}  // namespace trainrun
