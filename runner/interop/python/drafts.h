#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "registry/graph/graph.h"
#include "registry/kinds/layer.h"
#include "runner/interop/python/expression.h"
#include "runner/interop/python/source_file.h"

namespace trainrun::python {

/// One list of layers, before it is decided whether it is a class, and with which parameters.
struct Draft {
  struct Child {
    std::string name;
    Expression make{};
    std::shared_ptr<Draft> inner{};  // instead of `make`
    std::string same_as{};           // instead of both: the child of this list that it is
    bool is_plain = false;           // called with one value, it gives one
  };
  struct Statement {
    std::string targets;     // "x"
    std::string expression;  // "self.conv1(x)"
  };
  std::string title;                // of its class
  bool is_block = false;            // the recipe gives it a name of its own
  std::vector<std::string> inputs;  // of `forward`
  std::vector<Child> children;
  std::vector<Statement> statements;
  std::vector<std::string> ties;  // "self.lm_head.weight = self.wte.weight"
  std::string result;             // what `forward` returns
  bool is_chain = true;           // each child reads what the one before gives, and nothing else happens
  Expression make{};              // how it is made; set by `settle`
};

/// Reads a graph and those within its layers.
class Drafter {
 public:
  Drafter(const LayerRegistry& registry, SourceFile& file) : registry_(registry), file_(file) {}
  /// `slots`: what it gives; the names of these values go to `outputs`.
  std::shared_ptr<Draft> draft(const Graph& graph, const std::string& title, const std::vector<size_t>& slots,
                               std::vector<std::string>* outputs = nullptr);
  /// All that were read, those within others first.
  const std::vector<std::shared_ptr<Draft>>& drafts() const { return drafts_; }

 private:
  struct Values;
  void add(const Graph::Node& node, size_t number, const Graph& graph, Values& values, Draft& draft);
  Draft::Child child_of(const Graph::Node& node, const std::vector<std::string>& inputs, std::string& call,
                        std::string& first, std::string& targets, bool& keeps);
  void note_state(const Graph::Node& node, const std::string& access, Draft& draft);

  const LayerRegistry& registry_;
  SourceFile& file_;
  std::vector<std::shared_ptr<Draft>> drafts_;
  std::map<const void*, std::pair<const Draft*, std::string>> modules_;     // of layers: where they were made
  std::map<const void*, std::pair<const Draft*, std::string>> parameters_;  // likewise, "self.wte.weight"
};

/// Decides for each draft how it is made: as a call of nn.Sequential, or as a class, which is added to `file`.
void settle(const std::vector<std::shared_ptr<Draft>>& drafts, SourceFile& file);

/// A module of another: "self.conv1", `self["0"]`.
std::string access_to(const std::string& child);

}  // namespace trainrun::python
