#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

struct SHA256state_st;  // NOLINT(readability-identifier-naming): OpenSSL's SHA256_CTX

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

  /// `update` of two with as many bytes each. Together they take hardly longer than one on a processor with instructions
  /// for SHA-256, since each of these waits for the one before it.
  static void update_both(Sha256& a, const void* of_a, Sha256& b, const void* of_b, size_t size);

 private:
  struct Free {
    void operator()(SHA256state_st* context) const;
  };
  std::unique_ptr<SHA256state_st, Free> context_;
};

std::string sha256(std::string_view bytes);

}  // namespace trainrun
