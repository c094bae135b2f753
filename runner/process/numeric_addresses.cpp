// Keeps LibTorch from asking the domain name system for the name of each rank that connects.
//
// The store at which ranks meet (c10d's TCPStore) names both ends of each connection for its log, by getnameinfo. For
// "::ffff:127.0.0.1" no file of the system has a name, so a name server is asked, and nobody is answered until it has
// replied: 2 to 10 seconds a connection where it is slow or cannot be reached. The dynamic loader takes the definition
// here before the C library's.
#include "runner/process/numeric_addresses.h"

#include <dlfcn.h>
#include <netdb.h>

namespace trainrun {
namespace {

using GetNameInfo = decltype(&::getnameinfo);

/// The C library's, or that of a library which was preloaded.
GetNameInfo next_getnameinfo() {
  static const auto next = reinterpret_cast<GetNameInfo>(dlsym(RTLD_NEXT, "getnameinfo"));
  return next;
}

}  // namespace

std::string name_hosts_by_number() {
  return dlsym(RTLD_DEFAULT, "getnameinfo") == reinterpret_cast<void*>(&::getnameinfo) && next_getnameinfo()
             ? ""
             : "a library that was preloaded names them";
}

}  // namespace trainrun

// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): the C library's are reserved
extern "C" int getnameinfo(const sockaddr* address, socklen_t size, char* host, socklen_t host_size, char* service,
                           socklen_t service_size, int flags) {
  return trainrun::next_getnameinfo()(address, size, host, host_size, service, service_size, flags | NI_NUMERICHOST);
}
