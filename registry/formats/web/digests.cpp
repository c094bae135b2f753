#include "registry/formats/web/digests.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "registry/formats/files/file_io.h"
#include "registry/language/error.h"
#include "registry/language/hex.h"

namespace trainrun {

std::string git_blob_sha1(const std::string& path) {
  constexpr size_t kPiece = size_t{1} << 20;
  FileReader file(path);
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  if (!context || EVP_DigestInit_ex(context.get(), EVP_sha1(), nullptr) != 1) {
    throw DataError(path + ": OpenSSL has no SHA-1 on this machine");
  }
  std::string head = "blob " + std::to_string(file.size());
  head.push_back('\0');
  EVP_DigestUpdate(context.get(), head.data(), head.size());
  std::vector<char> piece(kPiece);
  for (uint64_t left = file.size(); left > 0;) {
    const size_t size = static_cast<size_t>(std::min<uint64_t>(left, piece.size()));
    file.read(piece.data(), size);
    EVP_DigestUpdate(context.get(), piece.data(), size);
    left -= size;
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes;
  unsigned int length = 0;
  EVP_DigestFinal_ex(context.get(), bytes.data(), &length);
  return hex_of({reinterpret_cast<const char*>(bytes.data()), length});
}

}  // namespace trainrun
