#include "registry/data/gzip_file.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "registry/image_data/idx.h"
#include "tests/doctest.h"
#include "tests/registry/data_support.h"
#include "tests/support.h"
#include "tests/temporary_folder.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;
using test::EnvironmentVariable;
using test::gzip;

std::string some_bytes(int count) {
  std::string content;
  for (int i = 0; i < count; ++i) content += static_cast<char>(i % 7 == 0 ? (int64_t{i} * i) >> 3 : i % 5);
  return content;
}

TEST_CASE("a gzip file is unpacked at once only where all of it is one whole member of the size that was expected") {
  const TemporaryFolder folder;
  std::string content;
  for (int i = 0; i < 60000; ++i) content += static_cast<char>(i % 7 == 0 ? (int64_t{i} * i) >> 3 : i % 5);
  const std::string packed = gzip(content);
  const auto unpacks = [&](const std::string& bytes, size_t size) {
    folder.write("a.gz", bytes);
    std::string found(size, '?');
    return unpack_whole(folder / "a.gz", found.data(), size) && found == content;
  };
  CHECK(unpacks(packed, content.size()));
  CHECK(unpack_whole((folder.write("empty.gz", gzip("")), folder / "empty.gz"), nullptr, 0));
  CHECK_FALSE(unpacks(packed, content.size() - 1));
  CHECK_FALSE(unpacks(packed, content.size() + 1));
  CHECK_FALSE(unpacks(packed + "x", content.size()));
  CHECK_FALSE(unpacks(packed + gzip("more"), content.size()));
  CHECK_FALSE(unpacks(content, content.size()));
  CHECK_FALSE(unpacks("", content.size()));
  for (size_t i = 0; i < packed.size(); i += 97) {
    CHECK_FALSE(unpacks(packed.substr(0, i), content.size()));
    std::string damaged = packed;
    damaged[i] ^= 0x10;
    if (i > 10) CHECK_FALSE(unpacks(damaged, content.size()));  // before, the time and the system are written
  }
}

/// A cache of its own, and a packed file.
struct GzipCacheFixture {
  std::vector<fs::path> kept() const {
    std::vector<fs::path> files;
    if (!fs::exists(folder / "cache/unpacked")) return files;
    for (const auto& entry : fs::directory_iterator(folder / "cache/unpacked")) {
      if (entry.path().extension() != ".lock") files.push_back(entry.path());
    }
    return files;
  }
  /// What is found there; "nothing" for none.
  std::string found(const std::string& name) const {
    const auto mapping = unpacked_in_cache(folder / name);
    return mapping ? std::string(mapping->bytes()) : "nothing";
  }

  TemporaryFolder folder;
  EnvironmentVariable cache = EnvironmentVariable("TRAINRUN_CACHE", folder / "cache");
  std::string content = some_bytes(5 << 20);
};

TEST_CASE_FIXTURE(GzipCacheFixture, "what a gzip file holds is unpacked once, for all its copies, and mapped") {
  folder.write("a.gz", gzip(content));
  folder.write("copy.gz", gzip(content));
  CHECK(found("a.gz") == content);
  REQUIRE(kept().size() == 1);
  const auto written = fs::last_write_time(kept()[0]);
  fs::last_write_time(kept()[0], written - std::chrono::hours(1));
  CHECK(found("a.gz") == content);
  CHECK(found("copy.gz") == content);
  REQUIRE(kept().size() == 1);
  CHECK(fs::last_write_time(kept()[0]) == written - std::chrono::hours(1));

  folder.write("other.gz", gzip(content.substr(1)));
  CHECK(found("other.gz") == content.substr(1));
  CHECK(kept().size() == 2);
}

TEST_CASE_FIXTURE(GzipCacheFixture, "who writes into what is mapped changes nothing for others") {
  folder.write("a.gz", gzip(content));
  *unpacked_in_cache(folder / "a.gz")->begin() = '!';
  CHECK(found("a.gz") == content);
}

TEST_CASE_FIXTURE(GzipCacheFixture, "what is damaged in the cache is unpacked again") {
  folder.write("a.gz", gzip(content));
  CHECK(found("a.gz") == content);
  const std::string path = kept().at(0).string();
  for (const std::string& damaged : {content.substr(0, 1000), content + "x", "?" + content.substr(1), std::string()}) {
    std::ofstream(path, std::ios::binary) << damaged;
    CHECK(found("a.gz") == content);
    CHECK(kept().size() == 1);
  }
}

TEST_CASE_FIXTURE(GzipCacheFixture, "a file that is not one whole member, or is small, leaves nothing in the cache") {
  const std::string packed = gzip(content);
  std::string changed = packed;
  changed[packed.size() / 2] ^= 0x10;
  const std::vector<std::string> others = {"",
                                           "short",
                                           packed + gzip("more"),
                                           packed + packed,
                                           gzip(content.substr(0, 4000000)),
                                           packed.substr(0, packed.size() - 1),
                                           changed,
                                           content};
  for (const std::string& other : others) {
    folder.write("a.gz", other);
    CHECK(found("a.gz") == "nothing");
  }
  CHECK(kept().empty());
}

TEST_CASE_FIXTURE(GzipCacheFixture, "where the cache cannot be used, nothing is kept") {
  folder.write("a.gz", gzip(content));
  folder.write("cache", "a file, where a folder would have to be");
  CHECK(found("a.gz") == "nothing");
  const EnvironmentVariable none("TRAINRUN_CACHE", std::nullopt);
  const EnvironmentVariable no_caches("XDG_CACHE_HOME", std::nullopt);
  const EnvironmentVariable no_home("HOME", std::nullopt);
  CHECK(found("a.gz") == "nothing");
}

TEST_CASE_FIXTURE(GzipCacheFixture, "large IDX files are read alike from the cache, small ones without it") {
  constexpr int64_t kLarge = 3000 * 40 * 40;
  const auto idx = [](char hundreds, const std::string& pixels) {  // 300 images, or 3,000, of 40x40
    const char count[] = {0, 0, static_cast<char>(hundreds * 100 >> 8), static_cast<char>(hundreds * 100 & 0xFF)};
    return std::string("\0\0\x08\x03", 4) + std::string(count, 4) + std::string("\0\0\0\x28\0\0\0\x28", 8) + pixels;
  };
  const std::string pixels = some_bytes(kLarge);
  folder.write("large.gz", gzip(idx(30, pixels)));
  folder.write("small.gz", gzip(idx(3, pixels.substr(0, kLarge / 10))));
  for (int i = 0; i < 2; ++i) {
    const at::Tensor images = read_idx(folder / "large.gz", 3);
    CHECK(images.sizes() == at::IntArrayRef({3000, 40, 40}));
    CHECK(std::string(static_cast<const char*>(images.const_data_ptr()), images.nbytes()) == pixels);
    images.fill_(1);  // as whoever has a tensor may
  }
  CHECK(kept().size() == 1);
  CHECK(read_idx(folder / "small.gz", 3).size(0) == 300);
  CHECK(kept().size() == 1);
}

}  // namespace
}  // namespace trainrun
