#include "registry/formats/web/download.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "registry/data/data_cache.h"
#include "registry/data/data_file.h"
#include "tests/doctest.h"
#include "tests/registry/data_support.h"
#include "tests/registry/http_server.h"

namespace trainrun {
namespace {

using test::contains;
using test::HttpServer;
using test::message_of;

/// A file that has no two halves alike.
std::string wanted_content() {
  std::string content;
  for (int i = 0; i < 20000; ++i) content += std::to_string(i) + ",";
  return content;
}

struct Fixture {
  const std::string content = wanted_content();
  TemporaryFolder folder;
  HttpServer server;
  Download job;

  Fixture() {
    job.destination = folder / "sub/file.bin";
    job.verify = [this](const std::string& path) {
      if (content_of(path) != content) throw DataError("the content is wrong");
    };
  }
  void write_part(const std::string& text) const { folder.write("sub/file.bin.part", text); }
  void check_downloaded() const {
    CHECK(content_of(job.destination) == content);
    CHECK_FALSE(std::filesystem::exists(job.destination + ".part"));
  }
  using Requests = std::vector<std::string>;
};

TEST_CASE_FIXTURE(Fixture,
                  "a download lands under its name, in a folder that is made for it, and nothing else is left") {
  server.add("file", {content});
  job.urls = {server.url() + "file"};
  download(job);
  check_downloaded();
  CHECK(server.requests() == Requests{"file"});
  download(job);  // is there: nothing is asked for
  CHECK(server.requests().size() == 1);
}

TEST_CASE_FIXTURE(Fixture, "a download goes on where an earlier one was broken off") {
  server.add("file", {content});
  job.urls = {server.url() + "file"};
  write_part(content.substr(0, 1000));
  download(job);
  check_downloaded();
  CHECK(server.requests() == Requests{"file 1000-"});
}

TEST_CASE_FIXTURE(Fixture, "a server without ranges sends the file from its start") {
  HttpServer::File file{content};
  file.ranges = false;
  server.add("file", file);
  job.urls = {server.url() + "file"};
  write_part(content.substr(0, 1000));
  download(job);
  check_downloaded();
  CHECK((server.requests() == Requests{"file 1000-", "file"}));
}

TEST_CASE_FIXTURE(Fixture, "a transfer that breaks off is continued, and given up when it breaks off again and again") {
  HttpServer::File file{content};
  file.num_interruptions = 2;
  server.add("file", file);
  file.num_interruptions = 100;
  server.add("hopeless", file);
  job.urls = {server.url() + "file"};
  download(job);
  check_downloaded();
  CHECK(server.requests().size() == 3);
  CHECK(server.requests()[1] == "file " + std::to_string(content.size() / 2) + "-");

  job.destination = folder / "other.bin";
  job.urls = {server.url() + "hopeless"};
  CHECK(contains(message_of<DataError>([&] { download(job); }), "interrupted again and again"));
  CHECK_FALSE(std::filesystem::exists(job.destination));
  CHECK(std::filesystem::file_size(job.destination + ".part") > 0);  // the next attempt continues it
}

TEST_CASE_FIXTURE(Fixture, "what an earlier download left of another file is thrown away") {
  server.add("file", {content});
  job.urls = {server.url() + "file"};
  write_part(std::string(1000, 'x'));
  download(job);
  check_downloaded();
  CHECK((server.requests() == Requests{"file 1000-", "file"}));
}

TEST_CASE_FIXTURE(Fixture, "a part that is whole already is taken, one that is too long is not") {
  server.add("file", {content});
  job.urls = {server.url() + "file"};
  SUBCASE("whole") {
    write_part(content);
    download(job);
    CHECK(server.requests().size() == 1);
  }
  SUBCASE("too long") {
    write_part(content + "more");
    download(job);
    CHECK(server.requests().size() == 2);
  }
  check_downloaded();
}

TEST_CASE_FIXTURE(Fixture, "mirrors are tried in order: not found, broken, unreachable, wrong content, right") {
  HttpServer::File broken;
  broken.status = 503;
  server.add("broken", broken);
  server.add("wrong", {"<html>please log in</html>"});
  server.add("right", {content});
  std::string nobody;
  {
    HttpServer gone;
    nobody = gone.url();
  }
  const std::vector<std::string> bad = {server.url() + "missing", server.url() + "broken", nobody + "file",
                                        "file:///etc/hostname", server.url() + "wrong"};
  job.urls = bad;
  const std::string message = message_of<DataError>([&] { download(job); });
  for (const std::string& url : bad) CHECK_MESSAGE(contains(message, url + ": "), message);
  CHECK(contains(message, "404"));
  CHECK(contains(message, "503"));
  CHECK(contains(message, "the content is wrong"));
  CHECK(contains(message, job.destination));
  CHECK_FALSE(std::filesystem::exists(job.destination));

  job.urls.push_back(server.url() + "right");
  download(job);
  check_downloaded();
}

TEST_CASE_FIXTURE(Fixture, "two that want the same file at the same time fetch it once") {
  server.add("file", {content});
  job.urls = {server.url() + "file"};
  std::thread other([&] { download(job); });
  download(job);
  other.join();
  check_downloaded();
  CHECK(server.requests().size() == 1);
}

TEST_CASE_FIXTURE(Fixture, "a folder that cannot be made is an error that names it") {
  folder.write("sub", "a file in the way");
  job.urls = {server.url() + "file"};
  CHECK(contains(message_of<DataError>([&] { download(job); }), folder / "sub"));
}

TEST_CASE("MD5 is that of RFC 1321, of a file as it lies and of what is in it") {
  const TemporaryFolder folder;
  const std::string plain = folder.write("plain", "message digest");
  const std::string packed = folder.write("packed.gz", test::gzip("message digest"));
  CHECK(md5_of_file(plain) == "f96b697d7cb7938d525a2f31aaf161d0");
  CHECK(md5_of_content(plain) == "f96b697d7cb7938d525a2f31aaf161d0");
  CHECK(md5_of_content(packed) == "f96b697d7cb7938d525a2f31aaf161d0");
  CHECK(md5_of_file(packed) != md5_of_content(packed));
}

/// A cache of its own, for as long as this lives.
class ScopedCache {
 public:
  ScopedCache() { setenv("TRAINRUN_CACHE", (folder_ / "cache").c_str(), 1); }
  ScopedCache(const ScopedCache&) = delete;
  ScopedCache& operator=(const ScopedCache&) = delete;
  ~ScopedCache() { unsetenv("TRAINRUN_CACHE"); }
  std::string path(const std::string& name) const { return folder_ / ("cache/data/" + name); }
  /// Something that is no folder where the cache would be.
  void block() const { folder_.write("cache", "a file in the way"); }

 private:
  TemporaryFolder folder_;
};

TEST_CASE_FIXTURE(Fixture, "what one recipe fetched another finds in the cache, and it lies at each destination") {
  const ScopedCache cache;
  server.add("file", {content});
  job.urls = {server.url() + "file"};
  CHECK(download_shared(job, "set/file.bin") == job.destination);
  CHECK(content_of(cache.path("set/file.bin")) == content);
  job.destination = folder / "another/file.bin";
  CHECK(download_shared(job, "set/file.bin") == job.destination);
  CHECK(server.requests() == Requests{"file"});
  check_downloaded();
}

TEST_CASE_FIXTURE(Fixture, "a file of the cache that is not the one wanted is fetched again") {
  const ScopedCache cache;
  server.add("file", {content});
  job.urls = {server.url() + "file"};
  download_shared(job, "set/file.bin");
  std::filesystem::remove(job.destination);
  std::ofstream(cache.path("set/file.bin")) << "damaged";
  download_shared(job, "set/file.bin");
  CHECK(server.requests().size() == 2);
  check_downloaded();
}

TEST_CASE_FIXTURE(
    Fixture,
    "where the cache cannot be, files go to their destination; where that cannot be, they are read from the cache") {
  const ScopedCache cache;
  server.add("file", {content});
  job.urls = {server.url() + "file"};
  SUBCASE("no cache") {
    cache.block();
    CHECK(download_shared(job, "set/file.bin") == job.destination);
    check_downloaded();
  }
  SUBCASE("no destination") {
    folder.write("sub", "a file in the way");
    CHECK(download_shared(job, "set/file.bin") == cache.path("set/file.bin"));
    CHECK(content_of(cache.path("set/file.bin")) == content);
  }
}

TEST_CASE("the cache is where TRAINRUN_CACHE, XDG_CACHE_HOME or HOME say, in this order; relative paths are ignored") {
  const std::string xdg = std::getenv("XDG_CACHE_HOME") ? std::getenv("XDG_CACHE_HOME") : "";
  setenv("TRAINRUN_CACHE", "/a", 1);
  setenv("XDG_CACHE_HOME", "/b", 1);
  CHECK(cache_folder() == "/a");
  setenv("TRAINRUN_CACHE", "a", 1);
  CHECK(cache_folder() == "/b/trainrun");
  unsetenv("TRAINRUN_CACHE");
  setenv("XDG_CACHE_HOME", "b", 1);
  if (const char* home = std::getenv("HOME")) CHECK(cache_folder() == std::string(home) + "/.cache/trainrun");
  xdg.empty() ? unsetenv("XDG_CACHE_HOME") : setenv("XDG_CACHE_HOME", xdg.c_str(), 1);
}

TEST_CASE("MNIST with download: true refuses a file that is not the published one") {
  for (const std::string name : {"MNIST", "FashionMNIST", "KMNIST"}) {
    HttpServer server;
    const ScopedCache cache;
    const TemporaryFolder folder;
    server.add("t10k-images-idx3-ubyte.gz", {test::gzip("something else")});
    const auto data = test::dataset(R"({"type": ")" + name + R"(", "split": "test", "download": true, "root": ")" +
                                    folder / "new" + R"(", "mirrors": [")" + server.url() + R"("]})");
    const std::string message = message_of<DataError>([&] { data->open(); });
    CHECK_MESSAGE(contains(message, "the server did not send the published t10k-images-idx3-ubyte.gz"), message);
    CHECK(server.requests() == std::vector<std::string>{"t10k-images-idx3-ubyte.gz"});
    CHECK_FALSE(std::filesystem::exists(folder / "new/t10k-images-idx3-ubyte.gz"));
  }
}

TEST_CASE("MNIST with download: true takes the real files from a mirror, once, by what is in them") {
  const char* data_folder = std::getenv("TRAINRUN_DATA");
  if (!data_folder || !std::filesystem::exists(std::string(data_folder) + "/mnist")) {
    MESSAGE("skipped: no data: there is no mnist in TRAINRUN_DATA");
    return;
  }
  HttpServer server;
  const ScopedCache cache;
  const TemporaryFolder folder;
  for (const std::string name : {"t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"}) {
    HttpServer::File file{
        content_of(std::string(data_folder) + "/mnist/" + name)};  // compressed anew: another archive MD5
    file.num_interruptions = 1;
    server.add(name, file);
  }
  const std::string recipe = R"({"type": "MNIST", "split": "test", "download": true, "root": ")" + folder.path() +
                             R"(", "mirrors": [")" + server.url() + R"("]})";
  CHECK(test::open_dataset(recipe)->size() == 10000);
  CHECK(server.requests().size() == 4);
  CHECK(test::open_dataset(recipe)->size() == 10000);
  CHECK(server.requests().size() == 4);
  CHECK(std::filesystem::exists(cache.path("mnist/t10k-images-idx3-ubyte.gz")));
}

}  // namespace
}  // namespace trainrun
