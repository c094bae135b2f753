#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstdint>
#include <string>
#include <utility>

#include "registry/formats/files/descriptor.h"
#include "runner/control/request_socket.h"

namespace trainrun {

/// The name of the socket in a run's folder.
constexpr const char* kControlSocket = "control.sock";

/// A socket's address, which has room for 107 bytes only: of a longer path its folder is opened and named by number.
class SocketAddress {
 public:
  /// Throws FileError.
  explicit SocketAddress(const std::string& path);
  const sockaddr* address() const { return reinterpret_cast<const sockaddr*>(&address_); }
  static constexpr socklen_t size() { return sizeof(sockaddr_un); }

 private:
  Descriptor folder_;
  sockaddr_un address_{};
};

/// Listens at a socket that only its owner, and root, may use.
class ControlSocket {
 public:
  /// A socket that a killed process left is replaced. Throws FileError.
  ControlSocket(std::string path, RequestSocket::Handler handler);
  /// Removes the socket; what is still to be sent is sent, for a second at most.
  ~ControlSocket();
  ControlSocket(const ControlSocket&) = delete;
  ControlSocket& operator=(const ControlSocket&) = delete;

  void answer(uint64_t client, std::string text) { requests_.answer(client, std::move(text)); }

 private:
  std::string path_;
  RequestSocket requests_;
};

}  // namespace trainrun
