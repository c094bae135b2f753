#include "runner/control/control_client.h"

#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "registry/language/error.h"
#include "runner/control/control_socket.h"

namespace trainrun {
namespace {

Descriptor connected_to(const std::string& folder, const std::string& path) {
  const SocketAddress address(path);
  Descriptor file(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (file.number() < 0) throw FileError(path, "open", errno);
  if (::connect(file.number(), address.address(), SocketAddress::size()) == 0) return file;
  if (errno == ECONNREFUSED || errno == ENOENT) {
    throw Error(folder + ": no process trains this run now" +
                (errno == ENOENT ? std::string(" (there is no ") + kControlSocket + ")" : std::string()));
  }
  throw FileError(path, "connect to", errno);
}

}  // namespace

bool has_control_socket(const std::string& folder) {
  struct stat status{};
  return ::lstat((folder + "/" + kControlSocket).c_str(), &status) == 0 && S_ISSOCK(status.st_mode);
}

ControlAnswer ask_run(const std::string& folder, const std::string& line,
                      std::optional<std::chrono::milliseconds> patience) {
  const std::string path = folder + "/" + kControlSocket;
  const Descriptor file = connected_to(folder, path);
  const std::string request = line + "\n";
  if (::send(file.number(), request.data(), request.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(request.size())) {
    throw FileError(path, "write to", errno);
  }
  std::string text;
  const auto end = std::chrono::steady_clock::now() + patience.value_or(std::chrono::milliseconds(0));
  while (true) {
    pollfd wanted = {file.number(), POLLIN, 0};
    int left = -1;
    if (patience) {
      const auto time = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
      left = static_cast<int>(std::max<int64_t>(time.count(), 0));
    }
    const int ready = ::poll(&wanted, 1, left);
    if (ready == 0) throw Error(folder + ": the run does not answer");
    if (ready < 0 && errno == EINTR) continue;
    char piece[4096];
    const ssize_t size = ::read(file.number(), static_cast<char*>(piece), sizeof piece);
    if (size < 0) throw FileError(path, "read from", errno);
    if (size == 0) break;
    text.append(static_cast<char*>(piece), static_cast<size_t>(size));
  }
  const nlohmann::json answer = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!answer.is_object()) throw Error(folder + ": the run ended before it answered");
  return {answer.value("ok", false), answer.value("text", "")};
}

}  // namespace trainrun
