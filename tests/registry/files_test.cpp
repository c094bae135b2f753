#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>

#include "registry/formats/files/csv_text.h"
#include "registry/formats/files/digest.h"
#include "registry/formats/files/file_io.h"
#include "registry/formats/files/json_depth.h"
#include "registry/language/error.h"
#include "registry/tensors/files/safetensors.h"
#include "registry/tensors/files/torch_file.h"
#include "tests/doctest.h"
#include "tests/support.h"
#include "tests/temporary_folder.h"

namespace trainrun {
namespace {

using test::contains;
using test::message_of;

TEST_CASE("CSV quotes what RFC 4180 says") {
  CHECK(csv_record({"a", "b,c", "say \"so\"", "", "two\nlines"}) == "a,\"b,c\",\"say \"\"so\"\"\",,\"two\nlines\"\n");
}

TEST_CASE("JSON may be nested so deep and no deeper") {
  const auto fault = [](const std::string& text) {
    return message_of<DataError>([&] { check_json_depth(text, 2, "a.json"); });
  };
  for (const char* text : {"", "1", "[]", "[[], {}]", R"([{"[[[": "]\"[[["}])", "]]]] [[]]", R"(["[[[[[)", "[\"\\"}) {
    CHECK_NOTHROW(check_json_depth(text, 2, "a.json"));
  }
  for (const char* text : {"[[[", "[{\"a\": []}]", "[[1], [[]]]", R"([[], ["\\", [)", R"(["\"", [[)"}) {
    CHECK(fault(text) == "a.json: is nested too deeply: its lists and objects are nested more than 2 deep");
  }
}

}  // namespace

TEST_CASE("SHA-256 gives the digests of FIPS 180-4 and of the NIST examples") {
  CHECK(sha256("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Sha256 hash;
  for (int i = 0; i < 1000; ++i) hash.update(std::string(1000, 'a').data(), 1000);
  CHECK(hash.finish() == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("two SHA-256 together are those that they are apart, from any place in a block") {
  std::mt19937 draw(3);  // NOLINT(bugprone-random-generator-seed): the same on every run
  const auto up_to = [&](size_t most) { return std::uniform_int_distribution<size_t>(0, most)(draw); };
  for (int round = 0; round < 200; ++round) {
    std::array<Sha256, 2> together;
    std::array<std::string, 2> whole;
    for (int part = 0; part < 4; ++part) {
      const size_t size = up_to(round % 2 == 0 ? 70 : 1000);
      std::array<std::string, 2> parts;
      for (size_t i = 0; i < 2; ++i) {
        const std::string alone(up_to(70), static_cast<char>('a' + part));
        together[i].update(alone.data(), alone.size());
        for (size_t byte = 0; byte < size; ++byte) parts[i] += static_cast<char>(draw());
        whole[i] += alone + parts[i];
      }
      Sha256::update_both(together[0], parts[0].data(), together[1], parts[1].data(), size);
    }
    for (size_t i = 0; i < 2; ++i) CHECK(together[i].finish() == sha256(whole[i]));
  }
}

TEST_CASE("two SHA-256 together count more bytes than 32 bits of bits") {
  const std::string piece(size_t{1} << 20, 'x');
  std::array<Sha256, 3> hashes;
  for (int i = 0; i < 513; ++i) {
    Sha256::update_both(hashes[0], piece.data(), hashes[1], piece.data(), piece.size());
    hashes[2].update(piece.data(), piece.size());
  }
  const std::string expected = hashes[2].finish();
  CHECK(hashes[0].finish() == expected);
  CHECK(hashes[1].finish() == expected);
}

TEST_CASE("files that share a thread for hashing have their own digests") {
  const TemporaryFolder folder;
  const auto hashing = std::make_shared<HashThread>();
  FileWriter large(folder / "large", hashing), small(folder / "small", hashing);
  const std::string first(size_t{23} << 20, 'a'), few(1000, 'b'), second((size_t{9} << 20) + 5, 'c');
  large.write("head");
  large.write_lasting({first, few, first});
  small.write_lasting({few, second, few});
  small.write_lasting({second});
  large.write_lasting({second, ""});
  CHECK(small.finish().sha256 == sha256(few + second + few + second));
  CHECK(large.finish().sha256 == sha256("head" + first + few + first + second));
  CHECK(digest_file(folder / "large").sha256 == sha256(content_of(folder / "large")));
}

TEST_CASE("a file writer's digest is that of the file, for pieces of every size") {
  const TemporaryFolder folder;
  std::string whole;
  FileWriter file(folder / "f");
  for (const size_t size : {size_t{1}, size_t{7}, size_t{1} << 19, size_t{1} << 20, size_t{3}, size_t{5} << 19}) {
    const std::string piece(size, static_cast<char>('a' + whole.size() % 26));
    file.write(piece);
    whole += piece;
  }
  std::vector<std::string> lasting;
  for (const size_t size : {size_t{5}, size_t{9} << 20, size_t{3}, size_t{3} << 19}) lasting.emplace_back(size, 'l');
  for (const size_t count : {lasting.size(), size_t{1}, lasting.size()}) {
    file.write_lasting({lasting.begin(), lasting.begin() + static_cast<std::ptrdiff_t>(count)});
    for (size_t i = 0; i < count; ++i) whole += lasting[i];
  }
  const FileDigest digest = file.finish();
  CHECK(content_of(folder / "f") == whole);
  CHECK(digest == FileDigest{sha256(whole), static_cast<int64_t>(whole.size())});
  CHECK(digest_file(folder / "f") == digest);
}

TEST_CASE("a file that is not finished is removed, and an atomic write that fails leaves the old content") {
  const TemporaryFolder folder;
  {
    FileWriter(folder / "half").write("abc");
  }
  CHECK(!std::filesystem::exists(folder / "half"));

  write_file_atomically(folder / "f", "old");
  CHECK_THROWS_AS(write_file_atomically(folder / "f",
                                        [](FileWriter& file) {
                                          file.write("new");
                                          throw Error("the tensor is gone");
                                        }),
                  Error);
  CHECK(content_of(folder / "f") == "old");
  write_file_atomically(folder / "f", "new");
  CHECK(content_of(folder / "f") == "new");
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("a file system that refuses is an error that names path and reason") {
  const TemporaryFolder folder;
  write_content(folder / "file", "");
  const std::string below = folder / "file/x";
  CHECK(message_of<Error>([&] { write_file_atomically(below, "x"); }) ==
        folder / "file/.x.tmp-" + std::to_string(::getpid()) + ": cannot create: Not a directory");
  CHECK(message_of<Error>([&] { create_folders(below); }) == below + ": cannot create the folder: Not a directory");
  CHECK(message_of<Error>([&] { create_folders(folder / "file"); }) ==
        folder / "file: cannot create the folder: File exists");
  CHECK(message_of<Error>([&] { read_file(folder / "none", 1); }) ==
        folder / "none: cannot open: No such file or directory");
  CHECK(message_of<Error>([&] { read_file(folder.path(), 1); }) == folder.path() + ": expected a file, found a folder");
  std::filesystem::create_directories(folder / "full/of");
  CHECK(contains(message_of<Error>([&] { write_file_atomically(folder / "full", "x"); }), "Is a directory"));
}

TEST_CASE("folders are made with those above them, links replaced whatever they named") {
  const TemporaryFolder folder;
  CHECK(create_folders(folder / "a/b/c"));
  CHECK(!create_folders(folder / "a/b/c"));
  replace_link("nowhere", folder / "link");
  replace_link("a", folder / "link");
  CHECK(std::filesystem::read_symlink(folder / "link") == "a");
  CHECK(exchange_paths(folder / "a/b", folder / "link"));
  CHECK(std::filesystem::is_directory(folder / "link/c"));
}

/// For tests/parity/files_parity_test.py: reads the weights of each FILE that the list TRAINRUN_TEST_FILES names, and
/// writes them to FILE.safetensors, or the error to FILE.error.
TEST_CASE("helper: rewrites weights" * doctest::skip()) {
  std::ifstream list(std::getenv("TRAINRUN_TEST_FILES"));
  for (std::string path; std::getline(list, path);) {
    try {
      write_safetensors(path + ".safetensors", load_weights(path));
    } catch (const Error& error) {
      write_content(path + ".error", error.what());
    }
  }
}

}  // namespace trainrun
