#pragma once

#include <string>

namespace trainrun {

/// Begins the heap with memory that the kernel may hand out in pages of 2 MB. LibTorch registers its operators in 57 MB,
/// which otherwise are 14,000 pages, each a fault. Where few such pages are free, 48 MB are fetched in one call. For `.preinit_array` alone (tools/main.cpp): before the constructors
/// of libraries, in which that happens.
void begin_heap_with_huge_pages(int argc, char** argv, char** variables);

/// "", or why the heap has no huge pages.
std::string huge_pages_outcome();

}  // namespace trainrun
