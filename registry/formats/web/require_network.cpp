#include "registry/formats/web/require_network.h"

#include "registry/formats/web/hub_cache.h"
#include "registry/formats/web/near_paths.h"
#include "registry/formats/web/network.h"
#include "registry/language/error.h"

namespace trainrun {

void require_network(const std::string& named, const std::string& what, const std::string& from, HubKind kind) {
  const std::string offline = offline_variable(kind);
  if (offline.empty() && network_is_allowed()) return;
  const std::string where = what + ": there is no such folder, and it is not in the cache (" + hub_cache_folder() + ")";
  const std::string near = near_path_hint(named);
  if (offline.empty()) throw DataError(where + "; `trainrun run` would fetch it from " + from + near);
  throw DataError(where + "; it would come from " + from + ", but " + offline + " is set: fetch it without " + offline +
                  ", or write a path (./" + named + ")" + near);
}

}  // namespace trainrun
