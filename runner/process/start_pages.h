#pragma once

#include <string>

namespace trainrun {

/// Gives back the pages of LibTorch's library that only the beginning of the program read: tables of the dynamic loader,
/// code that registered operators. What is read again comes from the file anew, mostly from the system's cache of it.
/// Returns "", or why nothing was given back.
std::string give_back_start_pages();

}  // namespace trainrun
