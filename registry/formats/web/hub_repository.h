#pragma once

#include <optional>
#include <string>
#include <vector>

#include "registry/formats/web/hub_client.h"

namespace trainrun {

/// A repository of the hub: what it holds, and its files once they are in the cache.
class HubRepository {
 public:
  /// As far as the cache knows it; nothing where it has no commit of the name's revision. Opens no network.
  static std::optional<HubRepository> in_cache(const HubName& name);
  /// From the cache where that has a listing of its files, else asks the hub, whose listing the cache then keeps. Where
  /// the network is not allowed, what the cache has will do. Throws DataError, as `fetch` does.
  static HubRepository open(const HubName& name);

  const HubName& name() const { return name_; }
  const std::string& commit() const { return listing_.commit; }
  const std::vector<std::string>& files() const { return listing_.files; }
  bool has(const std::string& file) const { return listing_.has(file); }
  /// Whether `files` are all that there are, not just those in the cache.
  bool is_listed() const { return is_listed_; }
  /// Where the file lies, or will.
  std::string path(const std::string& file) const;
  bool is_here(const std::string& file) const;
  std::string snapshot() const { return cache_.snapshot(listing_.commit); }

  /// Brings the files into the cache unless they are there, and notes what the revision is.
  void fetch(const std::vector<std::string>& files) const;

 private:
  HubRepository(HubName name, HubListing listing, bool is_listed);

  HubName name_;
  HubCache cache_;
  HubListing listing_;
  bool is_listed_;
};

}  // namespace trainrun
