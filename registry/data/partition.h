#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "registry/kinds/dataset.h"

namespace trainrun {

/// How samples are divided into parts where it matters what they hold.
struct Partition {
  std::vector<int64_t> weights;       // of the parts: how large each is, relative to the others
  std::vector<int64_t> classes = {};  // of each sample, numbers from 0; empty: they do not count
  std::vector<int64_t> groups = {};   // of each sample, numbers from 0, which stay together; empty: there are none
  std::optional<uint64_t> seed = {};  // of the draw; nothing: samples are taken in the data's order

  /// The part of each sample. Of each class, a part gets its share, rounded down or up; of equal parts the same counts as
  /// those of scikit-learn's StratifiedKFold. Groups go, the largest first, to the part that they fill least, as in
  /// GroupKFold; with classes, to the part with which the classes are spread most evenly, as in StratifiedGroupKFold. No
  /// part is left without a group. Throws DataError where there are fewer groups than parts.
  std::vector<int64_t> parts() const;

 private:
  std::vector<int64_t> by_class() const;
  std::vector<int64_t> by_group() const;
};

/// Which samples have equal values in a column of the file, or a field: numbers from 0 in the order in which values come
/// first. Throws DataError where there is no such column.
std::vector<int64_t> keys_of(const Dataset& data, const std::string& column);

/// What counts when samples of a data set are divided.
struct PartitionBy {
  bool stratify = false;             // the classes of the target
  std::optional<std::string> group;  // a column

  bool is_needed() const { return stratify || group; }
  /// The samples of `data`, which is open, that are in those of the parts `weights` that `is_chosen` tells, ascending.
  /// Throws DataError where the target does not hold classes, or there is no such column.
  at::Tensor choose(const Dataset& data, const std::vector<int64_t>& weights, std::optional<uint64_t> seed,
                    const std::vector<bool>& is_chosen) const;
};

}  // namespace trainrun
