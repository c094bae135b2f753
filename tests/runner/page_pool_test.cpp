#include "runner/process/page_pool.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/address_space.h"
#include "tests/doctest.h"
#include "tests/support.h"

namespace trainrun::test {
namespace {

constexpr size_t kMebibyte = size_t{1} << 20;

/// Memory that holds a number of its own in every place.
struct Filled {
  uint64_t* at;
  size_t bytes;
  uint64_t number;

  Filled(PagePool& pool, size_t size, uint64_t own)
      : at(static_cast<uint64_t*>(pool.take(size))), bytes(size), number(own) {
    std::fill(at, end(), number);
  }
  uint64_t* end() const { return at + bytes / 8; }
  bool is_whole() const {
    return std::all_of(at, end(), [&](uint64_t each) { return each == number; });
  }
};

}  // namespace

TEST_CASE("a page pool puts free pages together for a larger block, and maps only what is missing") {
  for (const size_t page : {size_t{64} << 10, 2 * kMebibyte}) {
    CAPTURE(page);
    PagePool pool(page);
    std::vector<void*> parts;
    for (int i = 0; i < 12; ++i) parts.push_back(pool.take(4 * kMebibyte));
    for (size_t i = 0; i < parts.size(); ++i) {
      std::fill_n(static_cast<char*>(parts[i]), 4 * kMebibyte, static_cast<char>(i + 1));
      CHECK(reinterpret_cast<uintptr_t>(parts[i]) % page == 0);
    }
    for (size_t i = 0; i < parts.size(); i += 2) CHECK(pool.give(parts[i]));  // none beside another
    const int64_t before = address_space();
    const auto* const all = static_cast<const char*>(pool.take(24 * kMebibyte));
    CHECK(address_space() == before);
    CHECK(std::none_of(all, all + 24 * kMebibyte, [](char each) { return each == 0; }));  // new pages are zeros
    for (size_t i = 1; i < parts.size(); i += 2) {
      const auto* const kept = static_cast<const char*>(parts[i]);
      CHECK(std::all_of(kept, kept + 4 * kMebibyte, [&](char each) { return each == static_cast<char>(i + 1); }));
    }
    CHECK(pool.give(const_cast<char*>(all)));
    pool.take(30 * kMebibyte);
    CHECK(address_space() == before + static_cast<int64_t>(6 * kMebibyte));
    for (size_t i = 1; i < parts.size(); i += 2) CHECK(pool.give(parts[i]));
    CHECK_FALSE(pool.give(parts[1]));
    pool.return_free();
    CHECK(address_space() == before + static_cast<int64_t>(6 * kMebibyte) - static_cast<int64_t>(24 * kMebibyte));
  }
}

TEST_CASE("a page pool's blocks keep what they hold, and take no more than the most that was ever in use") {
  std::mt19937 random(8);  // NOLINT(bugprone-random-generator-seed): the same on every run
  for (const size_t page : {size_t{64} << 10, 2 * kMebibyte}) {
    CAPTURE(page);
    PagePool pool(page);
    std::vector<Filled> blocks;
    const int64_t before = address_space();
    size_t used = 0, most = 0;
    const auto rounded = [&](size_t bytes) { return (bytes + page - 1) / page * page; };
    for (int i = 0; i < fuzz_rounds(400); ++i) {
      if (blocks.size() < 12 && random() % 2 == 0) {
        const size_t bytes = (random() % (6 * kMebibyte) + 1) / 8 * 8 + 8;
        blocks.emplace_back(pool, bytes, random());
        used += rounded(bytes);
        most = std::max(most, used);
      } else if (!blocks.empty()) {
        std::swap(blocks[random() % blocks.size()], blocks.back());
        CHECK(blocks.back().is_whole());
        used -= rounded(blocks.back().bytes);
        CHECK(pool.give(blocks.back().at));
        blocks.pop_back();
      }
      if (i % 97 == 96) {
        pool.return_free();
        most = used;
      }
    }
    CHECK(address_space() <= before + static_cast<int64_t>(most + kMebibyte));  // the test's own heap
    for (const Filled& block : blocks) CHECK(block.is_whole());
  }
}

}  // namespace trainrun::test
