// Throws while dlopen initialises its global objects, before trainrun can ask it anything. It happens: TORCH_LIBRARY,
// which registers operators by such an object, throws where an operator is registered twice.
#include <c10/util/Exception.h>

#include "registry/plugin.h"

namespace {

struct Device {
  Device() { TORCH_CHECK(false, "there is no device"); }
};

const Device kDevice;  // NOLINT(bugprone-throwing-static-initialization): what is tested

}  // namespace

TRAINRUN_PLUGIN(catalog) { static_cast<void>(catalog); }
