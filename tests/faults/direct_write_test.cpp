// Large files pass the page cache, and are whole where the system refuses that at any of their writes.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "registry/formats/files/digest.h"
#include "registry/formats/files/file_io.h"
#include "registry/formats/files/file_mapping.h"
#include "tests/doctest.h"
#include "tests/faults/fsync.h"
#include "tests/faults/system_calls.h"
#include "tests/temporary_folder.h"

namespace trainrun {
namespace {

constexpr size_t kPage = 4096;

/// How many pages of the file the page cache has; the number of all of them in `all`.
size_t cached_pages(const std::string& path, size_t& all) {
  const FileMapping file(path);
  const size_t size = file.bytes().size();
  std::vector<unsigned char> flags((size + kPage - 1) / kPage);
  all = flags.size();
  REQUIRE(::mincore(file.begin(), size, flags.data()) == 0);
  return static_cast<size_t>(std::count_if(flags.begin(), flags.end(), [](unsigned char flag) { return flag & 1; }));
}

bool has_direct_writes([[maybe_unused]] const std::string& folder) {
#ifdef STATX_DIOALIGN
  const std::string path = folder + "/probe";
  write_content(path, "");
  struct statx status{};
  return ::statx(AT_FDCWD, path.c_str(), 0, STATX_DIOALIGN, &status) == 0 && status.stx_dio_mem_align != 0;
#else
  return false;
#endif
}

/// Pieces of every kind, 11 MB in all: small before and after, and neither begins nor ends with a page.
std::vector<std::string> pieces_of_a_file() {
  std::vector<std::string> pieces;
  for (const size_t size :
       {size_t{71}, size_t{5} << 20, size_t{3}, size_t{1} << 20, size_t{0}, (size_t{5} << 20) + 9}) {
    pieces.emplace_back(size, static_cast<char>('a' + pieces.size()));
  }
  return pieces;
}

FileDigest write_in_pieces(const std::string& path, const std::vector<std::string>& pieces) {
  FileWriter file(path);
  file.write("header");
  file.write_lasting({pieces.begin(), pieces.end()});
  file.write("between");
  file.write_lasting({pieces.begin(), pieces.end()});
  return test::quickly([&] { return file.finish(); });
}

}  // namespace

TEST_CASE("a large file passes the page cache, but for its end") {
  const TemporaryFolder folder;
  if (!has_direct_writes(folder.path())) {
    MESSAGE("skipped: the file system of " << folder.path() << " does not say how it writes directly (Linux 6.1)");
    return;
  }
  const std::string path = folder / "f";
  write_in_pieces(path, pieces_of_a_file());
  size_t all = 0;
  const size_t cached = cached_pages(path, all);
  CHECK(all > 5000);
  CHECK(cached <= 512);  // the last piece of 1 MiB, at most, and the one before it
}

TEST_CASE("a large file is whole where any of its direct writes is refused") {
  const std::vector<std::string> pieces = pieces_of_a_file();
  std::string half;
  for (const std::string& piece : pieces) half += piece;
  const std::string whole = "header" + half + "between" + half;
  const FileDigest expected{sha256(whole), static_cast<int64_t>(whole.size())};
  const TemporaryFolder folder;
  const std::string path = folder / "f";
  const auto write = [&] { return write_in_pieces(path, pieces) == expected ? 0 : 1; };
  const std::vector<std::string> calls = run_with_fault(write, {}).calls;
  CHECK(content_of(path) == whole);
  if (!has_direct_writes(folder.path())) return;
  size_t refused = 0;
  for (size_t i = 0; i < calls.size(); ++i) {
    if (calls[i] != "write") continue;
    CAPTURE(i);
    std::filesystem::remove(path);
    const CallsOutcome outcome = run_with_fault(write, {.fail_at = static_cast<int>(i), .error_number = EINVAL});
    const auto next = calls.begin() + static_cast<std::ptrdiff_t>(i) + 1;
    if (std::find(next, calls.end(), "write") == calls.end()) {  // the last is not direct: an error
      CHECK(outcome.exit_code == 98);
      CHECK(!std::filesystem::exists(path));
      continue;
    }
    ++refused;
    CHECK(outcome.exit_code == 0);
    CHECK(content_of(path) == whole);
  }
  CHECK(refused > 10);
}

}  // namespace trainrun
