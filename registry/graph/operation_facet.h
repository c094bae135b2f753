#pragma once

namespace trainrun {

/// The base of what an operation may be besides an operation, which passes of a plan find by dynamic_cast.
class OperationFacet {
 public:
  OperationFacet() = default;
  OperationFacet(const OperationFacet&) = default;
  OperationFacet& operator=(const OperationFacet&) = delete;
  OperationFacet(OperationFacet&&) = delete;
  OperationFacet& operator=(OperationFacet&&) = delete;
  virtual ~OperationFacet() = default;
};

}  // namespace trainrun
