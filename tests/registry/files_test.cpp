#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
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
