#include "registry/formats/files/regular_file.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstring>

#include "registry/kinds/dataset.h"
#include "tests/doctest.h"
#include "tests/registry/data_support.h"

namespace trainrun {
namespace {

using test::contains;
using test::message_of;

std::string make_pipe(const TemporaryFolder& folder) {
  const std::string path = folder / "pipe.csv";
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  return path;
}

std::string make_socket(const TemporaryFolder& folder) {
  const std::string path = folder / "socket";
  const Descriptor end(socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  REQUIRE(bind(end.number(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  return path;
}

TEST_CASE("only files that are stored are opened, what else there is is named at once") {
  const TemporaryFolder folder;
  const auto fault = [](const std::string& path) { return message_of<DataError>([&] { open_regular_file(path); }); };
  const std::string file = folder.write("file", "x");
  CHECK(open_regular_file(file).number() >= 0);
  const std::string link = folder / "link";
  REQUIRE(symlink(file.c_str(), link.c_str()) == 0);
  CHECK(open_regular_file(link).number() >= 0);
  CHECK(fault(folder / "none") == folder / "none" + ": cannot open: No such file or directory");
  CHECK(fault(folder.path()) == folder.path() + ": expected a file, found a folder");
  const std::string pipe = make_pipe(folder);
  CHECK(fault(pipe) == pipe + ": expected a file, found a pipe");
  const std::string socket = make_socket(folder);
  CHECK(fault(socket) == socket + ": expected a file, found a socket");
  CHECK(fault("/dev/zero") == "/dev/zero: expected a file, found a device");
  CHECK(fault("/proc/self/status") ==
        "/proc/self/status: expected a file, found what the kernel makes up as it is read");
  const std::string to_proc = folder / "to_proc";
  REQUIRE(symlink("/proc/self/status", to_proc.c_str()) == 0);
  CHECK(contains(fault(to_proc), "the kernel"));
}

TEST_CASE("pipes, devices and the kernel's files are no data") {
  const TemporaryFolder folder;
  for (const std::string& path : {make_pipe(folder), std::string("/dev/zero"), std::string("/proc/self/status")}) {
    CAPTURE(path);
    const std::vector<nlohmann::json> recipes = {{{"type", "CSV"}, {"path", path}, {"label", "y"}},
                                                 {{"type", "JSONL"}, {"path", path}, {"label", "y"}},
                                                 {{"type", "SQLite"}, {"path", path}, {"label", "y"}, {"table", "t"}},
                                                 {{"type", "Parquet"}, {"path", path}, {"label", "y"}},
                                                 {{"type", "TensorFile"}, {"path", path}}};
    for (const nlohmann::json& recipe : recipes) {
      const std::string message = message_of<Error>([&] { test::open_dataset(recipe.dump()); });
      CAPTURE(message);
      CHECK((contains(message, path + ": expected a file") || contains(message, "TensorFile")));
    }
  }
}

}  // namespace
}  // namespace trainrun
