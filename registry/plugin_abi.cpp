#include "registry/plugin_abi.h"

#include "registry/plugin_loader.h"

// A source of its own: it is compiled anew whenever a public header changes.
namespace trainrun {

const PluginAbi& own_plugin_abi() {
  static constexpr PluginAbi kOwn = {TRAINRUN_ABI, TRAINRUN_PLUGIN_SECTION};
  return kOwn;
}

}  // namespace trainrun
