#pragma once
// c10d's FakeProcessGroup.hpp includes LibTorch's header of this name, which wants Python's; what it uses of it is
// this.
#include <c10/util/Exception.h>
