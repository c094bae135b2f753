#pragma once

/// Adds a family of components to `registry`: calls `void add_FAMILY(Registry&)`, which the family's source file defines.
/// A family is named on its room's page, families.cpp, and nowhere else: nothing registers itself, and the linker drops
/// nothing. Not for use in an anonymous namespace, which would be searched for the function.
#define TRAINRUN_ADD_FAMILY(registry, family) \
  {                                           \
    void add_##family(decltype(registry));    \
    add_##family(registry);                   \
  }
