#pragma once

namespace trainrun {

/// Begins the program anew with OMP_WAIT_POLICY and GOMP_SPINCOUNT set, where neither is and the command line asks for a
/// job. For `.preinit_array` alone (tools/main.cpp): it runs before the C library and the constructors of libraries.
void wait_passively(int argc, char** argv, char** variables);

}  // namespace trainrun
