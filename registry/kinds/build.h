#pragma once

#include "registry/language/registry.h"
#include "registry/tensors/fault.h"

namespace trainrun {

/// Builds `component`. An exception from its `build` becomes an error of the recipe at the component's place, except
/// for files and data that cannot be read: those errors name their own place, and the recipe is not at fault.
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
