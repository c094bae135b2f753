#pragma once

#include <string>

namespace trainrun {

/// Decides whether OpenMP is to find OMP_WAIT_POLICY and GOMP_SPINCOUNT set: where neither is and the command line asks
/// for a job. For `.preinit_array` alone (tools/main.cpp): it runs before the constructors of libraries.
void wait_passively(int argc, char** argv, char** variables);

/// Sets the two in the environment, too: for processes that this one starts, and for what says how threads wait. Starts
/// the program anew if OpenMP has not asked for them. Returns "", or why they are not set.
std::string keep_waiting_passively();

}  // namespace trainrun
