#pragma once

#ifdef DOCTEST_LIBRARY_INCLUDED
#error "include tests/doctest.h, not doctest/doctest.h: CHECK might be LibTorch's, of which doctest learns nothing"
#endif

// LibTorch has a CHECK of its own. Its header is read first, so that no later one can put that in the place of doctest's.
#include <c10/util/Logging.h>
// Tests are compiled together, and begin with `using namespace trainrun`, whose ScalarType this header would meet there.
#include <ATen/autocast_mode.h>
#undef CHECK
#include <doctest/doctest.h>
