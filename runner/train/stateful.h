#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runner/run/snapshots.h"

namespace trainrun {

/// A part of a job that a checkpoint keeps.
class Stateful {
 public:
  explicit Stateful(std::string name) : name_(std::move(name)) {}
  virtual ~Stateful() = default;
  /// Of the part, in Snapshots.
  const std::string& name() const { return name_; }
  /// As one process would have them, on rank 0: the run's own, not copies. All ranks call it.
  virtual NamedTensors tensors() { return {}; }
  /// What is `discarded` is not kept. All ranks call it.
  virtual nlohmann::json values() { return nlohmann::json(nlohmann::json::value_t::discarded); }
  /// Takes back what these gave, on every rank; a part that the checkpoint lacks is empty. Throws what does not fit.
  virtual void load(const Snapshot& snapshot) = 0;

 private:
  std::string name_;
};

}  // namespace trainrun
