#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "registry/graph/graph.h"

namespace trainrun {

/// The parameters of modules that change them in their forward pass, alike on every rank (ChangesParameters).
std::set<const at::TensorImpl*> parameters_changed_by_layers(const Graph& graph);

/// Notices a forward pass that changes parameters, other than those. Each of several ranks would change its own copy by
/// its own batch, and where parameters are sharded the change would be lost. Costs nothing to speak of.
class ParameterWatch {
 public:
  /// The graph must live as long.
  explicit ParameterWatch(const Graph& graph);

  /// What `pass` returns, a forward pass. Throws ComponentError that names the layer and the parameter that it changed.
  template <class Pass>
  auto around(const Pass& pass) {
    begin();
    auto outputs = pass();
    end();
    return outputs;
  }

 private:
  void begin();
  void end() const;
  [[noreturn]] void refuse(const std::string& parameter) const;

  const Graph& graph_;
  std::vector<std::pair<std::string, at::Tensor>> parameters_;
  std::vector<int64_t> versions_;  // of each, before the pass
};

}  // namespace trainrun
