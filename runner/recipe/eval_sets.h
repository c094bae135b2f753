#pragma once

#include <string>
#include <vector>

#include "registry/kinds/dataset.h"

namespace trainrun {

/// `dataset.eval`: one data set, or several by name: `{clean: {type: …}, noisy: {type: …}}`. There is at least one.
struct EvalSets {
  struct One {
    std::string name;  // "" where there is one, without a name
    Component<DatasetKind> data;
    /// "dataset.eval", "dataset.eval.clean"
    std::string path() const { return name.empty() ? "dataset.eval" : "dataset.eval." + name; }
    /// What its figures begin with: "eval", "eval/clean".
    std::string prefix() const { return name.empty() ? "eval" : "eval/" + name; }
  };
  std::vector<One> sets;
};

template <>
struct Codec<EvalSets> {
  static std::optional<EvalSets> read(const Value& value, Reader& reader);
  static nlohmann::json schema(SchemaContext& context);
  static nlohmann::json write(const EvalSets& sets);
  static std::string type_name() { return Codec<Component<DatasetKind>>::type_name() + ", or several by name"; }
};

}  // namespace trainrun
