#pragma once

#include <string>
#include <vector>

#include "registry/graph/graph.h"
#include "registry/kinds/layer.h"
#include "runner/interop/python/expression.h"
#include "runner/interop/python/source_file.h"

namespace trainrun::python {

/// The recipe's model as a torch.nn.Module.
struct Network {
  Expression make;                   // "Net()"
  std::vector<std::string> inputs;   // fields of the batch that `forward` reads
  std::string call;                  // "net({all})": what the outputs are computed by, of the inputs
  std::vector<std::string> outputs;  // names of what it returns, in the order of the slots asked for
};

/// Adds the classes that `graph` needs to `file`: layers in one order under their state names, blocks that come several
/// times as one class with what differs as its parameters. It returns the values in `slots`.
Network write_network(const Graph& graph, const std::vector<size_t>& slots, const LayerRegistry& registry,
                      SourceFile& file);

}  // namespace trainrun::python
