#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "registry/formats/files/digest.h"
#include "registry/language/codec.h"

namespace trainrun {

struct TokenizerSource;  // registry/formats/text/new_tokens.h

/// Whether the tokens of texts are kept for later runs.
enum class TokenCaching { kNone, kDisk };
template <>
struct Words<TokenCaching> {
  static constexpr std::array kWords = {"none", "disk"};
};
constexpr const char* kTokenCachingHelp =
    "disk: the tokens are kept in the cache folder (TRAINRUN_CACHE), from where later runs and all ranks map them into "
    "memory; they are made anew when the tokenizer's or the texts' files change. none: each run makes its own";

/// What tokens depend on, as a name for the file that keeps them.
class TokenCacheKey {
 public:
  /// `kind`: of the data that are kept.
  explicit TokenCacheKey(const std::string& kind);
  TokenCacheKey& add(std::string_view text);
  TokenCacheKey& add(int64_t number) { return add(std::to_string(number)); }
  /// The content of a file. Throws DataError.
  TokenCacheKey& add_file(const std::string& path);
  /// The content of all files that open_tokenizer(path) may read.
  TokenCacheKey& add_tokenizer(const std::string& path);
  /// The same, and what is added to them.
  TokenCacheKey& add_tokenizer(const TokenizerSource& source);
  /// 64 hexadecimal digits. The last call on this object.
  std::string finish() { return hash_.finish(); }

 private:
  Sha256 hash_;
};

/// Arrays of bytes, and what owns them.
struct ByteArrays {
  std::shared_ptr<const void> owner;
  std::vector<std::string_view> arrays;  // each begins at a multiple of 8 bytes
};

/// The `count` arrays kept in the cache folder under `key`, mapped into memory; `make` makes them where there are none, or
/// where the file is damaged or another program's. One process at a time makes them, the others wait for it. Throws
/// DataError where there is no cache folder, FileError where it cannot be written.
ByteArrays arrays_on_disk(const std::string& key, size_t count, const std::function<ByteArrays()>& make);

/// Of arrays, one after another: tells damage of the file that keeps them, not malice.
uint64_t token_checksum(const std::vector<std::string_view>& arrays);

/// Whether `begins` tells where each of `count` rows begins among `size` tokens, one after the other, and then the end. A
/// file that keeps tokens may lie about it with a right checksum.
bool are_begins(std::span<const int64_t> begins, size_t count, size_t size);

/// The numbers that lie in an array.
template <class T>
std::span<const T> numbers_in(std::string_view array) {
  return {reinterpret_cast<const T*>(array.data()), array.size() / sizeof(T)};  // aligned: see ByteArrays
}
template <class T>
std::string_view bytes_of(const std::vector<T>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T)};
}

}  // namespace trainrun
