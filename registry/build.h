#pragma once

#include "registry/fault.h"
#include "registry/files/file_io.h"
#include "registry/registry.h"

namespace trainrun {

/// What `component` builds. What its `build` throws becomes a fault of the recipe at the component's place, but for
/// files and data that cannot be had: those say themselves where, and are no fault of the recipe.
template <class Kind>
typename Kind::Product build_at_place(const Component<Kind>& component, const typename Kind::Inputs& inputs) {
  try {
    return component.build(inputs);
  } catch (const DataError&) {
    throw;
  } catch (const FileError&) {
    throw;
  } catch (const std::exception& error) {
    throw_fault(component.place, component.path, component.type + " cannot be built: ", error);
  }
}

}  // namespace trainrun
