#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "registry/kinds/dataset.h"

namespace trainrun {

/// Finds the columns of fields [N, F] that are the target but for a factor and an offset: what is learnt from such a one
/// is seldom known of the samples that are predicted for. Keeps sums, and no samples.
class LabelCopies {
 public:
  /// Adds the samples of a batch. Targets other than one number of each sample are passed over.
  void add(const Batch& batch, const std::string& target);
  /// Of such columns; none where the target never changes. `names_of` gives the names of a field's columns; where it has
  /// none, they are called by their places: features[3].
  std::vector<std::string> names(
      const std::function<std::vector<std::string>(const std::string& field)>& names_of) const;

 private:
  /// About the first sample, so that large numbers which hardly differ lose no digits. [F] float64, as all of them are.
  struct Sums {
    at::Tensor first, values, squares, products;
    bool is_ragged = false;  // as long as the longest row of each batch
  };
  std::map<std::string, Sums> fields_;
  double first_target_ = 0;
  double targets_ = 0;
  double target_squares_ = 0;
  int64_t count_ = 0;
};

}  // namespace trainrun
