// Calls what is not there, as a plugin built for another trainrun may.
#include "registry/plugin.h"

extern "C" void trainrun_test_function_that_is_gone();

TRAINRUN_PLUGIN(catalog) {
  static_cast<void>(catalog);
  trainrun_test_function_that_is_gone();
}
