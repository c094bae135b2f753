#include "registry/formats/files/digest.h"

#include <openssl/evp.h>

#include <array>

#include "registry/language/error.h"
#include "registry/language/hex.h"

namespace trainrun {
namespace {

void require(int succeeded) {
  if (succeeded != 1)
    throw Error("OpenSSL cannot compute SHA-256 on this machine; see `openssl list -digest-algorithms`");
}

}  // namespace

void Sha256::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  require(context_ != nullptr);
  require(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr));
}

void Sha256::update(const void* data, size_t size) { require(EVP_DigestUpdate(context_.get(), data, size)); }

std::string Sha256::finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int size = 0;
  require(EVP_DigestFinal_ex(context_.get(), digest.data(), &size));
  return hex_of({reinterpret_cast<const char*>(digest.data()), size});
}

std::string sha256(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes.data(), bytes.size());
  return hash.finish();
}

}  // namespace trainrun
