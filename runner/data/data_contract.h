#pragma once

#include <nlohmann/json.hpp>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "registry/components/transforms/scaling.h"
#include "registry/kinds/dataset.h"

namespace trainrun {

class DataTransforms;
struct Recipe;

/// What a model knows of a field of its training data.
struct FieldContract {
  FieldInfo info;                          // as the data set gives it, before the transforms
  std::vector<std::string> class_names;    // by number; empty: it has none
  std::vector<std::string> names_within;   // of its numbers along the last dimension; empty: they have none
  std::vector<std::string> one_hot_names;  // likewise, as FieldFacts has them
  std::string called;                      // what the file calls it; "": as the field
  std::vector<uint8_t> palette;            // of masks: red, green and blue of each class; empty: they have none
  std::optional<Scaling> scaling;          // by the transforms of training, and so the way back to its own units

  /// What a user calls it.
  const std::string& title() const { return called.empty() ? info.name : called; }
  /// `values` [..., K] in the field's own units: float64. K is the number of scales, or any where there is one.
  at::Tensor in_units(const at::Tensor& values) const;
  /// Standard deviations or other differences [..., K], which have no offset, in its own units: float64.
  at::Tensor differences_in_units(const at::Tensor& values) const;
};

/// What a model knows of the data that it was trained on, and by which all other data are read: evaluation data, what is
/// predicted for, what reports and exports say. By name, never by number. It is the part `learnt` of a checkpoint.
struct DataContract {
  std::string target;                 // the field that the loss compares with
  std::vector<FieldContract> fields;  // in the order of the data set
  std::vector<std::string> ids;       // columns that identify a sample
  nlohmann::json dataset;             // what the data set learnt (Dataset::learnt); null: nothing
  nlohmann::json transforms;          // likewise
  nlohmann::json inferred;            // how other data are read (DatasetFacts::inferred); null: nothing was inferred

  /// Of the training data, which are open and have learnt. `transforms`: null: theirs is left out.
  static DataContract of(const Dataset& train, const DataTransforms* transforms);
  /// Of a checkpoint's part. What older checkpoints do not hold is learnt from the training data of `recipe`, and said in
  /// `notes`.
  static DataContract from_json(const nlohmann::json& saved, const Recipe& recipe, std::vector<std::string>& notes);
  nlohmann::json to_json() const;

  /// Null: there is no such field.
  const FieldContract* field(const std::string& name) const;
  std::vector<std::string> class_names(const std::string& field) const;
  const FieldContract* target_field() const { return field(target); }
  /// The fields as the data set gave them.
  DatasetInfo info() const;
  /// The names within fields: {"features": ["age", "city"]}.
  nlohmann::json columns() const;
  /// Of the fields that the transforms scale.
  std::map<std::string, Scaling> scalings() const;
  /// A few lines for people.
  std::vector<std::string> lines() const;

  /// Has `data`, which are open, be read as the training data were. Throws DataError where the numbers in one of their
  /// fields have other names, or the same ones in another order. `path`: of `data` in the recipe.
  void read(Dataset& data, const std::string& path) const;
};

/// How data are read that are not the training data, as a checkpoint's part tells; null: it is of a time when this was
/// not saved.
nlohmann::json inferred_in(const nlohmann::json& saved);
/// What such a part says of the fields alone; nothing: the checkpoint is older.
std::optional<DataContract> fields_in(const nlohmann::json& saved);

}  // namespace trainrun
