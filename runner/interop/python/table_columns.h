#pragma once

#include <nlohmann/json_fwd.hpp>

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runner/interop/python/data.h"

namespace trainrun::python {

/// How a program reads a table whose columns are not numbers alone: all cells as texts, of which it makes numbers.
class TextColumns {
 public:
  /// Nothing where pandas reads all columns as trainrun does. Refuses what is not written. `is_regression`: the label is a
  /// number.
  static std::optional<TextColumns> of(const DataSource& source, const Component<DatasetKind>& set, bool is_regression);

  /// Adds the functions that the other parts call to `file`, `read_rows` of a path among them. `reader_options`: further
  /// arguments of pandas' read_csv.
  void define(SourceFile& file, const std::string& reader_options) const;
  /// Statements of load_table: what is learnt from the rows in `train`.
  std::string learnt() const;
  /// Statements of a function of `rows`: what it returns.
  std::string tensors() const;
  /// The fields that have float64, as trainrun has them of numbers that float32 does not hold.
  std::set<std::string> wide() const;

 private:
  struct Column {
    std::string name;
    std::string type = "number";
    std::optional<std::vector<std::string>> categories;
    bool one_hot = false;
    bool allow_unknown = false;
    std::optional<std::string> missing;  // a statistic, or the value as Python writes it; nothing: none is missing
    std::string format;                  // of dates; "": ISO 8601

    bool is_category() const { return type == "category"; }
    bool is_feature() const { return is_category() ? one_hot : type != "integer"; }
    bool learns_missing() const;
    std::string variable(const std::string& what) const;
  };

  void read_written(const Component<DatasetKind>& set, const Value& columns, std::vector<Problem>& unwritten);
  void read_inferred(const nlohmann::json& columns);
  void choose(const Component<DatasetKind>& set, const nlohmann::json& inferred);
  std::string filled(const Column& column, const std::string& rows) const;
  std::string numbers(const Column& column, const std::string& rows) const;
  std::string known(const Column& column, const std::string& rows) const;
  std::string category_numbers(const Column& column, const std::string& rows) const;
  std::string label_tensor() const;

  std::vector<Column> said_;      // by the recipe, or by the file's values
  std::vector<Column> features_;  // in their order
  Column label_;
  std::optional<std::vector<std::string>> na_values_;
  bool is_regression_ = false;
};

}  // namespace trainrun::python
