#pragma once

#include <string>

namespace trainrun {

/// Decides whether OpenMP is to find OMP_WAIT_POLICY and GOMP_SPINCOUNT set: where neither is and the command line asks
/// for a job. For `.preinit_array` alone (tools/main.cpp): it runs before the constructors of libraries.
void wait_passively(int argc, char** argv, char** variables);

/// Watches whether others want the CPUs. Where the system does not tell, or OpenMP has not asked for the two, sets them in the
/// environment instead, to passive waiting after 2,000 turns, and in the second case starts the program anew. Returns "",
/// or why neither was done.
std::string keep_waiting_passively();

/// Whether threads of this process wait for 16,000 turns, and for 1,000 while others want the CPUs, instead of as the
/// environment says.
bool waits_are_watched();

}  // namespace trainrun
