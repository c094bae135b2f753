#pragma once

#include <optional>
#include <string>

#include "runner/interop/python/data.h"

namespace trainrun::python {

/// The part that `split` of a data set is: which of the parts, and how they are made.
struct Part {
  std::string numbers;  // of all parts: "random_split(range(len(table)), [0.8, 0.2], …)"
  size_t number = 0;

  /// The numbers of its rows, of which `parts` is all.
  std::string rows() const;
};

/// Nothing: it takes all rows. Adds what `numbers` calls to the file. `count`, `classes`: the number of rows, and the
/// target of each, as expressions.
std::optional<Part> part_of(const DataSource& source, const Component<DatasetKind>& set, const std::string& count,
                            const std::string& classes);

}  // namespace trainrun::python
