#pragma once

#include <ATen/core/Tensor.h>

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "registry/language/error.h"

namespace trainrun {

/// The message of `error`; of LibTorch's errors, and of others that are not ours, only the first line, without a place
/// in LibTorch's sources or a backtrace.
std::string error_text(const std::exception& error);
/// All that is known about `error` and its causes, with backtraces; for `--verbose`.
std::string error_details(const std::exception& error);

/// How messages name a component.
struct ComponentName {
  Place place;
  std::string path;  // "model.layers[2]"
  std::string type;  // "Conv2d"
};

template <class Component>
ComponentName name_of(const Component& component) {
  return {component.place, component.path, component.type};
}

/// The error of a layer, loss, metric, optimizer or scheduler that failed while it ran. The error that it threw is
/// nested in this one.
class ComponentError : public Error {
 public:
  /// `inputs`: "[64, 10] and [64]", or "".
  ComponentError(const ComponentName& name, const std::string& inputs, const std::exception& error);
  /// "a.yaml:14:9: model.layers[2]: Conv2d failed in training step 12 on [64, 10]: …"; `when` begins with a space.
  std::string text(const std::string& when) const { return who_ + when + what_; }

 private:
  ComponentError(std::string who, std::string what);

  std::string who_;
  std::string what_;
};

/// "[64, 1, 28, 28] and [64]"
std::string sizes_text(const std::vector<at::Tensor>& tensors);

/// Throws a ComponentError for `error`, which is being handled; an error that already names a component is rethrown.
[[noreturn]] void throw_component_error(const ComponentName& name, const std::vector<at::Tensor>& inputs,
                                        const std::exception& error);

/// Returns what `body` returns; an exception from it becomes a ComponentError.
template <class Body>
auto as_component(const ComponentName& name, const std::vector<at::Tensor>& inputs, const Body& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    throw_component_error(name, inputs, error);
  }
}

/// While an object of this class lives, graphs note the layer whose gradient came last: if a backward pass fails, it
/// failed in that layer.
class BackwardTrace {
 public:
  BackwardTrace();
  ~BackwardTrace();
  BackwardTrace(const BackwardTrace&) = delete;
  BackwardTrace& operator=(const BackwardTrace&) = delete;

  /// This thread's, or null.
  static BackwardTrace* current();
  /// Notes that a layer returned `outputs`. Of a container and the last layer in it, the layer counts.
  void watch(const ComponentName& layer, const std::vector<at::Tensor>& outputs);
  /// Empty if no gradient has come.
  std::optional<ComponentName> last() const { return *last_; }

 private:
  std::shared_ptr<std::optional<ComponentName>> last_ = std::make_shared<std::optional<ComponentName>>();
  std::vector<at::Tensor> watched_;
};

}  // namespace trainrun
