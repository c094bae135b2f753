#pragma once

#include <string>

namespace trainrun {

/// Has the C library keep what is freed, and extend the heap by that many bytes at once. Returns whether it agrees.
bool keep_freed_memory(int extend_by);

/// Begins the heap with memory that the kernel may hand out in pages of 2 MB. LibTorch registers its operators in 57 MB,
/// which otherwise are 14,000 pages, each a fault. Where few such pages are free, 48 MB are fetched in one call. For
/// `.preinit_array` alone (tools/main.cpp): before the constructors of libraries, in which that happens.
void begin_heap_with_huge_pages(int argc, char** argv, char** variables);

/// "", or why the heap has no huge pages.
std::string huge_pages_outcome();

}  // namespace trainrun
