#include "runner/bundle/bundle_writer.h"

#include <zstd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <sstream>
#include <thread>

#include "registry/formats/files/digest.h"
#include "registry/formats/files/file_mapping.h"
#include "registry/language/error.h"
#include "runner/bundle/elf_symbols.h"

namespace trainrun {
namespace {

constexpr size_t kMostCompressed = size_t{1} << 30;  // in memory; longer files, which are weights or data, are stored

/// What a file of a bundle holds, while this lives: of code without its symbols.
class FileContent {
 public:
  explicit FileContent(const BundledFile& file) : text_(file.content) {
    if (file.source.empty()) return;
    const bool is_code = file.kind == BundledFile::Kind::kCode || file.kind == BundledFile::Kind::kExecuted;
    mapping_.emplace(file.source, is_code ? MappedFor::kWriting : MappedFor::kReading);
    if (is_code) clear_symbols(mapping_->begin(), mapping_->bytes().size());
  }
  std::string_view bytes() const { return mapping_ ? mapping_->bytes() : text_; }

 private:
  std::string_view text_;
  std::optional<FileMapping> mapping_;
};

/// As the list says it.
char letter_of(BundledFile::Kind kind) {
  if (kind == BundledFile::Kind::kExecuted) return 'x';
  return kind == BundledFile::Kind::kLink ? 'l' : '-';
}

struct FreeCompressor {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
};

}  // namespace

void add_digests(BundlePart& part) {
  std::ranges::sort(part.files, {}, &BundledFile::path);
  for (const BundledFile& file : part.files) {
    if (file.path.find('\n') != std::string::npos) {
      throw Error("a file whose name has two lines cannot be bundled: " + file.source);
    }
    const FileContent content(file);
    part.list += sha256(content.bytes()) + " " + letter_of(file.kind) + " " + std::to_string(content.bytes().size()) +
                 " " + file.path + "\n";
    part.bytes += content.bytes().size();
  }
  part.digest = sha256(part.list);
}

BundleWriter::BundleWriter(FileWriter& file, std::string_view starter, int level)
    : zip_(file, starter.size()), level_(level) {
  file.write(starter);
}

void BundleWriter::add_files(const BundlePart& part) {
  std::istringstream lines(part.list);
  for (const BundledFile& file : part.files) {
    std::string line;
    std::getline(lines, line);
    const FileContent content(file);
    if (!line.starts_with(sha256(content.bytes()))) {
      throw Error(file.source + " changed while the bundle was written; call the command again");
    }
    const std::string name = part.name + "/" + file.path;
    if (file.kind == BundledFile::Kind::kLink) {
      zip_.add(name, {content.bytes()});
    } else {
      add(name, content.bytes());
    }
  }
}

void BundleWriter::add(const std::string& name, std::string_view bytes) {
  if (bytes.size() > kMostCompressed) return zip_.add(name, {bytes});
  const std::unique_ptr<ZSTD_CCtx, FreeCompressor> context(ZSTD_createCCtx());
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, level_);
  // A library without threads refuses this, and compresses with one.
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_nbWorkers, static_cast<int>(std::thread::hardware_concurrency()));
  const size_t bound = ZSTD_compressBound(bytes.size());
  const std::unique_ptr<char[]> packed(
      new char[bound]);  // NOLINT(modernize-avoid-c-arrays): not filled with zeros first
  const size_t size = ZSTD_compress2(context.get(), packed.get(), bound, bytes.data(), bytes.size());
  if (ZSTD_isError(size) != 0) throw Error("zstd cannot compress " + name + ": " + ZSTD_getErrorName(size));
  if (size < bytes.size()) {
    zip_.add(name + ".zst", {{packed.get(), size}});
  } else {
    zip_.add(name, {bytes});
  }
}

}  // namespace trainrun
