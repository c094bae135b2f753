#include "runner/distributed/meeting.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <sstream>
#include <string_view>
#include <thread>
#include <vector>

#include "registry/formats/files/file_io.h"
#include "registry/language/value.h"
#include "registry/tensors/component_error.h"
#include "runner/distributed/bounded.h"
#include "runner/distributed/distributed_error.h"

namespace trainrun {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr const char* kHere = "127.0.0.1";
constexpr milliseconds kMeetingMargin(1000);
constexpr const char* kYes = "1";  // of a key that says all by being there

std::vector<uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

milliseconds until(Clock::time_point deadline) {
  return std::max(milliseconds(1), std::chrono::duration_cast<milliseconds>(deadline - Clock::now()));
}

std::string place_of(const std::string& address, int port) { return address + ":" + std::to_string(port); }

std::string random_name() {
  std::random_device source;
  std::ostringstream name;
  name << std::hex << source() << source();
  return name.str();
}

bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

/// The addresses of a name; empty, with `why`, where it has none.
std::shared_ptr<addrinfo> addresses_of(const std::string& host, int port, int type, std::string& why) {
  addrinfo hints = {};
  hints.ai_socktype = type;
  addrinfo* found = nullptr;
  const int fault = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (fault != 0) why = ::gai_strerror(fault);
  return fault == 0 ? std::shared_ptr<addrinfo>(found, ::freeaddrinfo) : nullptr;
}

std::string unreachable(const std::string& address, int port, const std::string& why) {
  return "nobody answers at " + place_of(address, port) +
         ", where the ranks meet; is rank 0's machine started, is this its address, and may others connect to that "
         "port? (" +
         why + ")";
}

std::string not_our_store(const std::string& address, int port, const std::string& why) {
  return "what listens at " + place_of(address, port) + ", where the ranks meet, is not their store (" + why +
         "): another program has that port; choose a free one by main_process_port in the recipe, or by MASTER_PORT";
}

/// Nothing where it accepts a connection within a second, else the reason.
std::string connection_fault(const addrinfo& target) {
  const Descriptor socket(::socket(target.ai_family, target.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (::connect(socket.number(), target.ai_addr, target.ai_addrlen) == 0) return "";
  if (errno != EINPROGRESS) return std::strerror(errno);
  pollfd end = {socket.number(), POLLOUT, 0};
  constexpr int kSecond = 1000;
  if (::poll(&end, 1, kSecond) <= 0) return std::strerror(ETIMEDOUT);
  int fault = 0;
  socklen_t size = sizeof fault;
  ::getsockopt(socket.number(), SOL_SOCKET, SO_ERROR, &fault, &size);
  return fault == 0 ? "" : std::strerror(fault);
}

/// c10d would retry as well, but say so with a stack of calls each time.
void wait_until_reachable(const std::string& address, int port, Clock::time_point deadline) {
  std::string why;
  do {
    const auto targets = addresses_of(address, port, SOCK_STREAM, why);
    for (const addrinfo* target = targets.get(); target; target = target->ai_next) {
      why = connection_fault(*target);
      if (why.empty()) return;
    }
    std::this_thread::sleep_for(milliseconds(100));
  } while (Clock::now() < deadline);
  throw DistributedError(unreachable(address, port, why));
}

/// torchrun's agent keeps a store that outlives the ranks it starts anew, and what they left there. How often it has
/// done so, no two agents need agree on. So rank 0 keeps a store of its own each time, and says in the agent's where;
/// the others take it from there until they find the one that is meant.
c10::intrusive_ptr<c10d::TCPStore> open_own_store(const Rendezvous& rendezvous, Clock::time_point deadline) {
  const auto agents = open_store(rendezvous.address, rendezvous.port, false, until(deadline));
  const std::string key = "trainrun/" + rendezvous.job + "/store";
  if (rendezvous.rank == 0) {
    auto own = open_store(kHere, 0, true, until(deadline));
    const std::string name = random_name();
    const std::string address = address_towards(rendezvous.address);
    own->set(name, bytes_of(kYes));
    agents->set(key, bytes_of((is_loopback(address) || address.empty() ? rendezvous.address : address) + " " +
                              std::to_string(own->getPort()) + " " + name));
    return own;
  }
  std::string why = "rank 0 has not come";
  while (Clock::now() < deadline) {
    try {
      agents->wait({key}, until(deadline));
      std::istringstream said(agents->get_to_str(key));
      std::string address;
      std::string name;
      int port = 0;
      said >> address >> port >> name;
      auto store = open_store(address, port, false, std::min(until(deadline), milliseconds(2000)));
      if (store->check({name})) return store;
    } catch (const std::exception& error) {  // what a rank 0 that is gone has left
      why = error_text(error);
    }
    std::this_thread::sleep_for(milliseconds(100));
  }
  throw DistributedError("rank " + std::to_string(rendezvous.rank) + " has not found rank 0 by torchrun's store at " +
                         place_of(rendezvous.address, rendezvous.port) + " in time: " + why);
}

/// Those that have not come, as words.
std::string missing_ranks(c10d::Store& store, int64_t world_size) {
  constexpr size_t kMostNames = 8;
  std::vector<std::string> missing;
  size_t count = 0;
  for (int64_t rank = 0; rank < world_size; ++rank) {
    if (store.check({"come/" + std::to_string(rank)})) continue;
    if (++count <= kMostNames) missing.push_back("rank " + std::to_string(rank));
  }
  const std::string more = count > kMostNames ? " and " + std::to_string(count - kMostNames) + " more" : "";
  return join(missing) + more + (count == 1 ? " has not come" : " have not come");
}

/// Waits for all ranks; returns whether they can meet at 127.0.0.1. A few operations of each rank, however many.
bool wait_for_all(const Rendezvous& rendezvous, c10d::Store& store, Clock::time_point deadline) {
  const std::string network = machine_name({"net"});  // those with the same one reach each other at 127.0.0.1
  const std::string who = "rank " + std::to_string(rendezvous.rank);
  const std::string where = place_of(rendezvous.address, rendezvous.port);
  if (store.add("come/" + std::to_string(rendezvous.rank), 1) > 1) {
    throw DistributedError("another process has come to " + where + " as " + who +
                           ": do the ranks of another job meet at this port? Choose another one by main_process_port "
                           "in the recipe, or by MASTER_PORT");
  }
  try {
    if (rendezvous.rank == 0) store.set("network", network);
    store.wait({"network"}, until(deadline));
    if (store.get_to_str("network") != network) store.set("several networks", kYes);
    if (store.add("come", 1) == rendezvous.world_size) store.set("all", kYes);
    store.wait({"all"}, until(deadline));
    return !store.check({"several networks"});
  } catch (const std::exception& error) {
    if (Clock::now() < deadline) {
      throw DistributedError(who + " lost the store at " + where + " (" + error_text(error) + ")");
    }
    throw DistributedError(who + " has waited at " + where + " until the timeout (distributed.meeting_timeout): " +
                           missing_ranks(store, rendezvous.world_size));
  }
}

/// This machine's address where ranks are on several: on the way to rank 0, or the way out where that is rank 0's own
/// name for itself.
std::string own_address(const Rendezvous& rendezvous) {
  std::string address = address_towards(rendezvous.address);
  if (!address.empty() && !is_loopback(address)) return address;
  std::string outward = address_towards("192.0.2.1");  // nobody has this address; nothing is sent
  if (is_loopback(outward)) outward.clear();
  return outward;
}

/// Who keeps the store: our launcher where it starts the ranks.
std::string keeper_of(const Rendezvous& rendezvous) {
  return rendezvous.launcher == "trainrun" ? "the launcher" : "rank 0";
}

Meeting meet_until(const Rendezvous& rendezvous, std::chrono::seconds timeout, Clock::time_point deadline) {
  const char* agent = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  const bool is_agents = rendezvous.launcher == "torchrun" && agent && std::string(agent) == "True";
  const bool is_server = rendezvous.rank == 0 && rendezvous.launcher != "trainrun";
  const auto opened = is_agents ? open_own_store(rendezvous, deadline)
                                : open_store(rendezvous.address, rendezvous.port, is_server, until(deadline));
  Meeting meeting;
  meeting.store = c10::make_intrusive<c10d::PrefixStore>(store_prefix(rendezvous.job), opened);
  meeting.keeper = keeper_of(rendezvous);
  meeting.address = wait_for_all(rendezvous, *meeting.store, deadline) ? kHere : own_address(rendezvous);
  opened->setTimeout(timeout);
  return meeting;
}

}  // namespace

std::string store_prefix(const std::string& job) { return "trainrun/" + job; }

Meeting meet(const Rendezvous& rendezvous, std::chrono::seconds timeout) {
  const Clock::time_point deadline = Clock::now() + timeout;
  const std::function<Meeting()> operation = [rendezvous, timeout, deadline] {
    return meet_until(rendezvous, timeout, deadline);
  };
  // Where the store answers, this throws by itself at the deadline, and knows more.
  if (auto meeting = run_bounded(operation, deadline + kMeetingMargin)) return *meeting;
  throw DistributedError("rank " + std::to_string(rendezvous.rank) + " has waited at " +
                         place_of(rendezvous.address, rendezvous.port) +
                         " until the timeout (distributed.meeting_timeout): " + keeper_of(rendezvous) +
                         ", which keeps the ranks' store, has not answered");
}

c10::intrusive_ptr<c10d::TCPStore> open_store(const std::string& address, int port, bool is_server,
                                              milliseconds timeout) {
  const Clock::time_point deadline = Clock::now() + timeout;
  if (!is_server) wait_until_reachable(address, port, deadline);
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port);
  options.isServer = is_server;
  options.waitWorkers = false;
  options.timeout = until(deadline);
  try {
    const std::function<c10::intrusive_ptr<c10d::TCPStore>()> open = [address, options] {
      return c10::make_intrusive<c10d::TCPStore>(address, options);
    };
    const auto opened = run_bounded(open, std::max(deadline, Clock::now() + kMeetingMargin));
    if (opened) return *opened;
    throw DistributedError(not_our_store(address, port, "it accepts connections and says nothing"));
  } catch (const DistributedError&) {
    throw;
  } catch (const std::exception& error) {
    if (!is_server) throw DistributedError(not_our_store(address, port, error_text(error)));
    if (std::string_view(error.what()).find("EADDRINUSE") == std::string::npos) {
      throw DistributedError("cannot keep the ranks' store at port " + std::to_string(port) + ": " + error_text(error));
    }
    throw DistributedError("port " + std::to_string(port) +
                           ", at which the ranks meet, is taken on this machine; choose a free one by "
                           "main_process_port in the recipe, or by MASTER_PORT");
  }
}

std::string machine_name(std::initializer_list<const char*> namespaces) {
  std::string name;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> name;
  bool is_known = !name.empty();
  for (const char* one : namespaces) {
    std::error_code error;
    name += " " + std::filesystem::read_symlink(std::string("/proc/self/ns/") + one, error).string();
    is_known = is_known && !error;
  }
  return is_known ? name : random_name();
}

std::string address_towards(const std::string& host) {
  std::string why;
  constexpr int kAnyPort = 9;  // nothing is sent
  const auto targets = addresses_of(host, kAnyPort, SOCK_DGRAM, why);
  std::string address;
  for (const addrinfo* target = targets.get(); target && address.empty(); target = target->ai_next) {
    const Descriptor socket(::socket(target->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage own = {};
    socklen_t size = sizeof own;
    auto* generic = reinterpret_cast<sockaddr*>(&own);
    char name[NI_MAXHOST];
    const bool known = ::connect(socket.number(), target->ai_addr, target->ai_addrlen) == 0 &&
                       ::getsockname(socket.number(), generic, &size) == 0 &&
                       ::getnameinfo(generic, size, name, sizeof name, nullptr, 0, NI_NUMERICHOST) == 0;
    if (known) address = name;
  }
  return address;
}

}  // namespace trainrun
