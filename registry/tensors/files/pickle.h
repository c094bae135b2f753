#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "registry/language/error.h"

namespace trainrun {

/// What a Python pickle (protocols 2 to 5) says, as data. Nothing that it names is imported, called or built: a call in
/// it is only written down. Values refer to each other by index, so loops and any depth of nesting are harmless.
struct Pickle {
  using Id = uint32_t;
  enum class Kind {
    kNone,
    kBool,
    kInteger,
    kFloat,
    kString,
    kBytes,
    kList,
    kTuple,
    kDict,
    kSet,
    kGlobal,
    kCall,
    kPersistent,
    kOther
  };

  struct Node {
    Kind kind = Kind::kNone;
    int64_t integer = 0;         // kBool, kInteger
    double number = 0;           // kFloat
    std::string text = {};       // kString, kBytes; of kGlobal "torch._utils._rebuild_tensor_v2"
    std::vector<Id> items = {};  // of lists, tuples, sets; kCall: what is called, its arguments; kPersistent: the id
    std::vector<std::pair<Id, Id>> entries = {};  // of kDict, and what was put into the result of a kCall
  };

  const Node& operator[](Id id) const { return nodes[id]; }
  /// The value under a string, or nullptr. The last one counts, as in Python.
  const Node* find(const Node& dict, std::string_view key) const;
  /// "a dict", "a string", "a __main__.Net": for error messages.
  std::string describe(const Node& node) const;
  /// The name of what a kCall calls, or "".
  std::string callee(const Node& call) const;

  std::vector<Node> nodes;
  Id root = 0;
};

/// Throws DataError that says what is wrong at which byte. A pickle of more than 4 million values is refused: 1 GB of
/// memory.
Pickle parse_pickle(std::string_view bytes);

}  // namespace trainrun
