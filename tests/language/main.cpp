// A program of registry/language alone: it has no LibTorch, neither its headers nor its libraries.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#if __has_include(<ATen/ATen.h>) || __has_include(<c10/macros/Macros.h>)
#error "registry/language and its tests are compiled without LibTorch"
#endif
