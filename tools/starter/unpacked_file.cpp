#define OPENSSL_SUPPRESS_DEPRECATED  // the newer functions would link all of OpenSSL, four times the size of this program
#include "tools/starter/unpacked_file.h"

#include <fcntl.h>
#include <openssl/sha.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <utility>
#include <vector>

namespace trainrun::starter {
namespace {

constexpr size_t kPiece = size_t{1} << 20;

std::string hexadecimal(SHA256_CTX& state) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256_Final(digest.data(), &state);
  std::string text;
  for (const unsigned char byte : digest) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

/// The file, hashed as it grows. Pieces of nothing but zeros become holes: symbols that were cleared take no space.
class Output {
 public:
  explicit Output(const Wanted& wanted)
      : file_(::open(wanted.path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, wanted.is_executed ? 0777 : 0666)) {
    if (file_ < 0) throw WriteError{errno};
    SHA256_Init(&hash_);
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  ~Output() {
    if (file_ >= 0) ::close(file_);
  }

  void write(const char* data, size_t size) {
    SHA256_Update(&hash_, data, size);
    const bool is_hole = size == kPiece && std::all_of(data, data + size, [](char byte) { return byte == 0; });
    for (size_t written = 0; !is_hole && written < size;) {
      const ssize_t more = ::pwrite(file_, data + written, size - written, static_cast<off_t>(bytes_ + written));
      if (more < 0 && errno != EINTR) throw WriteError{errno};
      if (more > 0) written += static_cast<size_t>(more);
    }
    bytes_ += size;
  }
  /// Its digest.
  std::string finish() {
    if (::ftruncate(file_, static_cast<off_t>(bytes_)) < 0) throw WriteError{errno};
    if (::close(std::exchange(file_, -1)) < 0 && errno != EINTR) throw WriteError{errno};
    return hexadecimal(hash_);
  }

 private:
  int file_;
  uint64_t bytes_ = 0;
  SHA256_CTX hash_{};
};

void copy_compressed(const BundleFile& bundle, const Member& member, const std::string& name, Output& output) {
  const std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> state(ZSTD_createDCtx(), ZSTD_freeDCtx);
  std::vector<char> packed(kPiece);
  std::vector<char> plain(kPiece);
  ZSTD_outBuffer out{plain.data(), plain.size(), 0};
  for (uint64_t done = 0; done < member.bytes;) {
    const size_t size = std::min<uint64_t>(packed.size(), member.bytes - done);
    bundle.read(member.offset + done, packed.data(), size);
    done += size;
    ZSTD_inBuffer in{packed.data(), size, 0};
    bool is_full = true;
    while (in.pos < in.size || is_full) {
      const size_t result = ZSTD_decompressStream(state.get(), &out, &in);
      if (ZSTD_isError(result) != 0) {
        throw BundleError(bundle.path() + ": the bundle is damaged in " + name + " (" + ZSTD_getErrorName(result) +
                          "); copy it again");
      }
      is_full = out.pos == out.size;
      if (is_full) {
        output.write(plain.data(), out.pos);
        out.pos = 0;
      }
    }
  }
  output.write(plain.data(), out.pos);
}

void copy_plain(const BundleFile& bundle, const Member& member, Output& output) {
  std::vector<char> piece(kPiece);
  for (uint64_t done = 0; done < member.bytes;) {
    const size_t size = std::min<uint64_t>(piece.size(), member.bytes - done);
    bundle.read(member.offset + done, piece.data(), size);
    output.write(piece.data(), size);
    done += size;
  }
}

}  // namespace

std::string sha256(const std::string& bytes) {
  SHA256_CTX state;
  SHA256_Init(&state);
  SHA256_Update(&state, bytes.data(), bytes.size());
  return hexadecimal(state);
}

void write_member(const BundleFile& bundle, const std::string& name, const Wanted& wanted) {
  const Member& member = bundle.member(name);
  Output output(wanted);
  if (bundle.is_compressed(name)) {
    copy_compressed(bundle, member, name, output);
  } else {
    copy_plain(bundle, member, output);
  }
  const std::string found = output.finish();
  if (found != wanted.sha256) {
    throw BundleError(bundle.path() + ": the bundle is damaged: SHA-256 of " + name + " is " + found + ", expected " +
                      wanted.sha256 + "; copy it again");
  }
}

}  // namespace trainrun::starter
