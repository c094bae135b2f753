#include "registry/formats/files/digest.h"

// The functions below give access to the state, which two streams at a time need. Newer ones of OpenSSL's do not.
#define OPENSSL_SUPPRESS_DEPRECATED  // NOLINT(readability-identifier-naming): OpenSSL's name
#include <openssl/sha.h>

#include <algorithm>
#include <array>

#include "registry/formats/files/sha256_pair.h"
#include "registry/language/hex.h"

namespace trainrun {
namespace {

/// Counts bytes that were hashed from the outside: as SHA256_Update does, in bits.
void count_bytes(SHA256_CTX& context, size_t size) {
  const uint64_t bits = (static_cast<uint64_t>(context.Nh) << 32 | context.Nl) + (static_cast<uint64_t>(size) << 3);
  context.Nh = static_cast<SHA_LONG>(bits >> 32);
  context.Nl = static_cast<SHA_LONG>(bits);
}

/// Bytes up to the next border between blocks.
size_t to_border(const SHA256_CTX& context) { return (SHA256_CBLOCK - context.num) % SHA256_CBLOCK; }

}  // namespace

void Sha256::Free::operator()(SHA256state_st* context) const { delete context; }

Sha256::Sha256() : context_(new SHA256_CTX) { SHA256_Init(context_.get()); }

void Sha256::update(const void* data, size_t size) { SHA256_Update(context_.get(), data, size); }

void Sha256::update_both(Sha256& a, const void* of_a, Sha256& b, const void* of_b, size_t size) {
  struct Stream {
    Sha256& hash;
    const uint8_t* next;
    size_t left;
    void take(size_t count) {
      hash.update(next, count);
      skip(count);
    }
    void skip(size_t count) {
      next += count;
      left -= count;
    }
  };
  std::array<Stream, 2> streams = {Stream{a, static_cast<const uint8_t*>(of_a), size},
                                   Stream{b, static_cast<const uint8_t*>(of_b), size}};
  if (has_sha256_pair()) {
    for (Stream& stream : streams) stream.take(std::min(stream.left, to_border(*stream.hash.context_)));
    const size_t blocks = std::min(streams[0].left, streams[1].left) / SHA256_CBLOCK;
    sha256_pair({a.context_->h, b.context_->h}, {streams[0].next, streams[1].next}, blocks);
    for (Stream& stream : streams) {
      count_bytes(*stream.hash.context_, blocks * SHA256_CBLOCK);
      stream.skip(blocks * SHA256_CBLOCK);
    }
  }
  for (Stream& stream : streams) stream.take(stream.left);
}

std::string Sha256::finish() {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest;
  SHA256_Final(digest.data(), context_.get());
  return hex_of({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

std::string sha256(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes.data(), bytes.size());
  return hash.finish();
}

}  // namespace trainrun
