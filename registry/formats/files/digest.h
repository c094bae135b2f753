#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

struct evp_md_ctx_st;  // OpenSSL's EVP_MD_CTX

namespace trainrun {

/// What a file holds, in brief: what two files that are the same have in common.
struct FileDigest {
  std::string sha256;  // 64 lower-case hexadecimal digits
  int64_t bytes = 0;
  bool operator==(const FileDigest&) const = default;
};

/// SHA-256 (FIPS 180-4) of bytes that come piece by piece.
class Sha256 {
 public:
  Sha256();
  void update(const void* data, size_t size);
  /// 64 lower-case hexadecimal digits. The last call on this object.
  std::string finish();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

std::string sha256(std::string_view bytes);

}  // namespace trainrun
