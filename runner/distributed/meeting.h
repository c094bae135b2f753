#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <initializer_list>
#include <string>

#include "runner/distributed/rendezvous.h"

namespace c10d {
class Store;
class TCPStore;
}  // namespace c10d

namespace trainrun {

/// The ranks of a job, once all of them have come.
struct Meeting {
  c10::intrusive_ptr<c10d::Store> store;  // of this start of this job alone
  std::string keeper;                     // of the store: "rank 0", or "the launcher"
  std::string address;                    // of this machine, for the other ranks to connect to; empty: unknown
};

/// Opens the store at the rendezvous, which rank 0 keeps where the launcher does not, and waits for all ranks. The
/// address is 127.0.0.1 where all of them are on one machine, else that of the interface by which rank 0's machine is
/// reached. Throws DistributedError that names the ranks that have not connected, or the reason.
Meeting meet(const Rendezvous& rendezvous, std::chrono::seconds timeout);

/// A store that this process keeps (`is_server`; port 0: any), or another process at that address, which may take until
/// the timeout to appear, its name too. Throws DistributedError that says what to do.
c10::intrusive_ptr<c10d::TCPStore> open_store(const std::string& address, int port, bool is_server,
                                              std::chrono::milliseconds timeout);

/// What the ranks of a launcher's job write before the names of what they keep in the store.
std::string store_prefix(const std::string& job);

/// Processes with the same one are under one kernel, in the same `namespaces` of it ("net", "pid"). Where that cannot be
/// known no two have the same one.
std::string machine_name(std::initializer_list<const char*> namespaces);

/// The address of this machine on the way to `host`; empty where there is no way.
std::string address_towards(const std::string& host);

}  // namespace trainrun
