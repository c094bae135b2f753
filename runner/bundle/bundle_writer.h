#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "registry/formats/files/file_io.h"
#include "registry/formats/files/zip_writer.h"

namespace trainrun {

/// A file of a bundle.
struct BundledFile {
  enum class Kind { kPlain, kExecuted, kCode, kLink };  // kCode: a shared library
  std::string path;                                     // within its part, "bin/trainrun"
  Kind kind = Kind::kPlain;
  std::string source = {};   // its file on this machine; "": `content`
  std::string content = {};  // of a link: what it leads to
};

/// Files that are unpacked into one folder, whose name has the digest of the list of them. Bundles of the same program
/// share it.
struct BundlePart {
  std::string name;
  std::vector<BundledFile> files;
  std::string list = {};    // a line for each file: SHA-256, kind, bytes, path; filled in by `add_digests`
  uint64_t bytes = 0;       // of all files; likewise
  std::string digest = {};  // of the list; likewise
};

/// Reads every file of the part. Throws DataError.
void add_digests(BundlePart& part);

/// Writes a bundle: `starter`, and behind it a zip archive of stored members: bundle.json, the lists NAME.list, texts, and
/// the files as NAME/PATH, or NAME/PATH.zst where zstd makes them smaller. So any zip program lists it, and unzip and zstd
/// unpack it.
class BundleWriter {
 public:
  /// `level`: of zstd.
  BundleWriter(FileWriter& file, std::string_view starter, int level);
  void add_text(const std::string& name, const std::string& text) { zip_.add(name, {text}); }
  /// Throws Error where a file is no longer what its digest says.
  void add_files(const BundlePart& part);
  void finish() { zip_.finish(); }

 private:
  void add(const std::string& name, std::string_view bytes);

  ZipWriter zip_;
  int level_;
};

}  // namespace trainrun
