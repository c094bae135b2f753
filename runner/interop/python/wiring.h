#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "registry/graph/graph.h"
#include "runner/interop/python/network.h"
#include "runner/recipe/recipe.h"

namespace trainrun::python {

/// What flows between batch, network, losses and metrics, as variables of the program.
struct Wiring {
  Network network;
  std::vector<std::string> outputs;  // what the network returns
  struct Target {
    std::string field;
    std::string variable;
  };
  std::vector<Target> targets;                    // fields of the batch that losses or metrics read
  std::vector<std::vector<std::string>> losses;   // of each loss: the variables that it reads
  std::vector<std::vector<std::string>> metrics;  // of each metric
  std::vector<std::string> of_losses;             // all that losses read, each once: outputs, then fields
  std::string reference;                          // what the network gives without its adapters; "": nothing reads it
  struct Kind {
    std::vector<int64_t> shape;  // without the batch
    bool is_integer = false;
  };
  std::map<std::string, Kind> kinds;  // of these variables

  /// The fields of the batch that the program reads, the network's first.
  std::vector<std::string> fields() const;
};

/// Adds the network's classes to `file`. Of the recipe's other `models` the network without its adapters alone is written.
Wiring wire(const Recipe& recipe, const Graph& graph, const DatasetInfo& info, const LayerRegistry& registry,
            SourceFile& file);

/// `batch["image"]`
std::string in_batch(const std::string& field);

}  // namespace trainrun::python
