#pragma once

#include <ATen/core/Tensor.h>
#include <nlohmann/json.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "registry/kinds/dataset.h"

namespace trainrun {

/// A column of a table: texts; numbers or booleans, [N], or lists of them, [N, …]; or values of any kind.
struct ValueColumn {
  using Values = std::variant<std::vector<std::string>, at::Tensor, std::vector<nlohmann::json>>;
  std::string name;
  Values values;

  int64_t size() const;
  /// Rows `first` to `first + count` - 1; texts and values of any kind are moved out of this.
  ValueColumn take(int64_t first, int64_t count);
};

/// What is to be predicted for, and what the training data left of how it is read.
struct UnlabelledSource {
  /// Files, or folders where the kind of data reads folders; one after the other.
  std::vector<std::string> paths;
  /// The fields of the training data, as their `info` gave them.
  DatasetInfo info;
  /// The names of numbers within fields (FieldFacts::names_within) of the training data: {"features": ["age", …]}.
  nlohmann::json columns = nlohmann::json::object();
  /// What they learnt (Dataset::learnt); null: nothing.
  nlohmann::json learnt = nullptr;
  /// Whether the columns of the target are read as well: forecasts are made from its past. It is then NaN where they hold
  /// nothing, and in such rows other columns may hold nothing either, but for `known`. Kinds that cannot throw DataError.
  bool with_target = false;
  std::vector<std::string> known = {};
  /// Columns that stand beside the samples (Piece::beside) even if the model reads them, too.
  std::vector<std::string> kept = {};
  /// How many samples at the beginning are passed over, those that are broken among them.
  int64_t begin = 0;
  /// Told of each sample that cannot be read, by its place, and that is then left out. Empty: such a sample is an error.
  std::function<void(const std::string& fault)> broken = {};
};

/// Samples without labels, in their order, read as the training data were: a piece at a time, so that memory need not
/// hold them all.
class UnlabelledData {
 public:
  struct Piece {
    /// Open, and read by what was learnt. Its target means nothing.
    std::unique_ptr<Dataset> samples;
    /// What predictions are written beside, a value for each sample: what samples are called by, and the columns of the
    /// file that the model does not read. The same ones in all pieces.
    std::vector<ValueColumn> beside;
    /// How many rows of predictions a sample has: the steps of a forecast. `beside` then has as many values for each.
    int64_t rows_per_sample = 1;
    /// How many samples were read for it; more than it has where some are left out.
    int64_t num_read = 0;
  };
  virtual ~UnlabelledData() = default;
  /// Nothing at the end. Throws DataError.
  virtual std::optional<Piece> next() = 0;
  /// How many samples there are, where that is known beforehand.
  virtual std::optional<int64_t> size() const { return std::nullopt; }
  /// What a user should know, a sentence each; once all is read.
  virtual std::vector<std::string> notes() const { return {}; }
};

}  // namespace trainrun
