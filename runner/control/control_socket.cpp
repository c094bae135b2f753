#include "runner/control/control_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace trainrun {
namespace {

constexpr int kMostWaiting = 16;  // for their connection
constexpr mode_t kOwnerOnly = 0600;

/// Whether the other end belongs to this user, or to root.
bool is_trusted(int file) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(file, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  return peer.uid == ::geteuid() || peer.uid == 0;
}

/// A socket that a killed process left is replaced.
Descriptor listening_at(const std::string& path) {
  const SocketAddress address(path);
  Descriptor file(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (file.number() < 0) throw FileError(path, "make", errno);
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) throw FileError(path, "replace", errno);
  // The mode of the socket is that of its name from the first instant on.
  if (::fchmod(file.number(), kOwnerOnly) != 0) throw FileError(path, "protect", errno);
  if (::bind(file.number(), address.address(), SocketAddress::size()) != 0) throw FileError(path, "make", errno);
  if (::chmod(path.c_str(), kOwnerOnly) == 0 && ::listen(file.number(), kMostWaiting) == 0) return file;
  const int error = errno;
  ::unlink(path.c_str());
  throw FileError(path, "listen at", error);
}

}  // namespace

SocketAddress::SocketAddress(const std::string& path) {
  address_.sun_family = AF_UNIX;
  std::string named = path;
  if (named.size() >= sizeof address_.sun_path) {
    const auto slash = path.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
    folder_ = Descriptor(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (folder_.number() < 0) throw FileError(folder, "open", errno);
    named = "/proc/self/fd/" + std::to_string(folder_.number()) + "/" + path.substr(slash + 1);
  }
  if (named.size() >= sizeof address_.sun_path) throw FileError(path, "name a socket", ENAMETOOLONG);
  std::memcpy(static_cast<char*>(address_.sun_path), named.c_str(), named.size() + 1);
}

ControlSocket::ControlSocket(std::string path, RequestSocket::Handler handler)
    : path_(std::move(path)), requests_(listening_at(path_), std::move(handler), is_trusted) {}

ControlSocket::~ControlSocket() { ::unlink(path_.c_str()); }

}  // namespace trainrun
