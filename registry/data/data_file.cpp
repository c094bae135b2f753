#include "registry/data/data_file.h"

#include <openssl/evp.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "registry/formats/files/file_io.h"
#include "registry/formats/files/regular_file.h"
#include "registry/formats/files/unpacking.h"
#include "registry/language/error.h"
#include "registry/language/hex.h"

namespace trainrun {
namespace {

constexpr size_t kPiece = size_t{1} << 20;

class Md5 {
 public:
  Md5() : context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {
    if (!context_ || EVP_DigestInit_ex(context_.get(), EVP_md5(), nullptr) != 1) {
      throw Error("this system's OpenSSL refuses MD5, which downloads are checked with");
    }
  }
  void update(const void* data, size_t size) { EVP_DigestUpdate(context_.get(), data, size); }
  std::string finish() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> bytes;
    unsigned int size = 0;
    EVP_DigestFinal_ex(context_.get(), bytes.data(), &size);
    return hex_of({reinterpret_cast<const char*>(bytes.data()), size});
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

}  // namespace

void DataFile::Close::operator()(gzFile_s* file) const { gzclose(file); }

DataFile::DataFile(std::string path) : path_(std::move(path)) {
  Descriptor descriptor = open_regular_file(path_);
  file_.reset(gzdopen(descriptor.number(), "rb"));
  if (!file_) throw DataError(path_ + ": cannot open: out of memory");
  descriptor.release();  // zlib closes it
  gzbuffer(file_.get(), 1 << 17);
}

size_t DataFile::read(void* data, size_t size) {
  size_t done = 0;
  while (done < size) {
    const auto piece = static_cast<unsigned>(std::min(size - done, size_t{1} << 24));
    const int got = gzread(file_.get(), static_cast<char*>(data) + done, piece);
    int code = Z_OK;
    const char* message = gzerror(file_.get(), &code);
    if (code == Z_BUF_ERROR) throw DataError(path_ + ": the file is cut off in the middle of its gzip data");
    if (code == Z_ERRNO) throw DataError(path_ + ": cannot read: " + std::strerror(errno));
    if (got < 0 || (code != Z_OK && code != Z_STREAM_END)) {
      throw DataError(path_ + ": damaged gzip data: " + message);
    }
    if (got == 0) break;
    done += static_cast<size_t>(got);
    given_ += static_cast<uint64_t>(got);
    if (given_ <= kAlwaysUnpacked || gzdirect(file_.get()) != 0) continue;
    if (is_bomb(static_cast<uint64_t>(std::max<z_off_t>(gzoffset(file_.get()), 0)), given_)) {
      throw DataError(path_ + ": its gzip data unpack to more than " + std::to_string(kMostTimesUnpacked) +
                      " times their size, as if to fill the memory; if they are meant to, unpack the file by gunzip");
    }
  }
  return done;
}

void DataFile::read_exactly(void* data, size_t size, const std::string& what) {
  const size_t got = read(data, size);
  if (got != size) {
    throw DataError(path_ + ": the file ends within " + what + ": " + std::to_string(size) + " bytes expected, " +
                    std::to_string(got) + " found");
  }
}

bool has_extension(const std::string& path, std::string_view extension) {
  std::string name = path;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c); });
  std::string_view rest = name;
  if (rest.ends_with(".gz") && extension != ".gz") rest.remove_suffix(3);
  return rest.ends_with(extension);
}

std::string other_kind_hint(const std::string& path) {
  constexpr size_t kMagic = 16;
  std::array<char, kMagic> bytes{};
  const std::string_view begin(bytes.data(), DataFile(path).read(bytes.data(), bytes.size()));
  if (begin.starts_with("PAR1")) return "; it is a Parquet file: write type: Parquet";
  if (begin.starts_with("ARROW1")) return "; it is an Arrow file: write type: Parquet, which reads these too";
  if (begin.starts_with("SQLite format 3")) return "; it is an SQLite file: write type: SQLite";
  if (begin.starts_with("PK\x03\x04") && has_extension(path, ".npz")) {
    return "; it is a NumPy archive: write type: TensorFile";
  }
  if (begin.starts_with("PK\x03\x04") || begin.starts_with("\xD0\xCF\x11\xE0")) {
    return "; it is a ZIP archive, or a spreadsheet: save the table as a CSV file";
  }
  const size_t first = begin.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && begin[first] == '{') return "; it holds JSON: write type: JSONL";
  return "";
}

std::string md5_of_file(const std::string& path) {
  FileReader file(path);
  Md5 md5;
  std::vector<char> piece(kPiece);
  for (uint64_t rest = file.size(); rest > 0;) {
    const size_t size = std::min<uint64_t>(rest, kPiece);
    file.read(piece.data(), size);
    md5.update(piece.data(), size);
    rest -= size;
  }
  return md5.finish();
}

std::string md5_of_content(const std::string& path) {
  DataFile file(path);
  Md5 md5;
  std::vector<char> piece(kPiece);
  while (const size_t got = file.read(piece.data(), kPiece)) md5.update(piece.data(), got);
  return md5.finish();
}

}  // namespace trainrun
