#pragma once

namespace trainrun {

/// A module whose forward pass changes its own parameters, alike on every rank: an Embedding with `max_norm`. Where
/// several ranks train, those of other modules must stay as they are.
class ChangesParameters {
 public:
  virtual ~ChangesParameters() = default;
  /// Whether this one does, with the options that it has.
  virtual bool changes_parameters() const { return true; }
};

}  // namespace trainrun
