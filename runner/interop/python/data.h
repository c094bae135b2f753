#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "runner/interop/python/source_file.h"
#include "runner/recipe/recipe.h"

namespace trainrun::python {

/// The data sets of a recipe, as the program makes them.
struct Data {
  /// Lines of `train` that make `train_data` and, where there are evaluation data, `eval_data`.
  std::vector<std::string> statements;
  /// Whether these are dicts of tensors with one row for each sample; otherwise they are a Dataset.
  bool is_tensors = true;
  /// Fields whose pixels are bytes, to be divided by 255.
  std::set<std::string> bytes;
  /// Fields with float64, which are float32 behind the transforms of both sets.
  std::set<std::string> wide;
  /// Fields whose images trainrun keeps pixel by pixel (channels last), for speed; batches of the program are the same.
  std::set<std::string> by_pixel;
  /// Further arguments of a DataLoader: ", collate_fn=collate".
  std::string loader_arguments;
  /// Whether the statements read `augment` and `prepare_image`, transforms of single images, whose first steps these are.
  bool reads_pipelines = false;
  std::vector<std::string> train_steps;
  std::vector<std::string> eval_steps;
  /// Names in the program of mean and standard deviation of fields that are standardized.
  std::map<std::string, std::pair<std::string, std::string>> scalings;
};

/// Adds what reads the recipe's data to `file`. `fields`: those that the program reads.
Data write_data(const Recipe& recipe, const std::vector<std::string>& fields, SourceFile& file);

/// One kind of data set. `train` and `eval` are of the same type; `eval` may be null.
struct DataSource {
  const Recipe& recipe;
  const Component<DatasetKind>& train;
  const Component<DatasetKind>* eval;
  const std::vector<std::string>& fields;
  SourceFile& file;

  void refuse(const std::string& message) const { file.refuse(train.place, train.path, message); }
  /// Refuses parameters that are written and not among these.
  void allow(const Component<DatasetKind>& set, const std::set<std::string>& known) const;
};

Data digits_data(const DataSource& source);
Data idx_data(const DataSource& source);
Data table_data(const DataSource& source);
Data windows_data(const DataSource& source);
Data tensor_file_data(const DataSource& source);
Data language_data(const DataSource& source);
Data cifar_data(const DataSource& source);
Data image_folder_data(const DataSource& source);
Data segmentation_data(const DataSource& source);
Data pets_data(const DataSource& source);
Data mrpc_data(const DataSource& source);
Data text_classification_data(const DataSource& source);
Data chat_data(const DataSource& source);
Data preference_data(const DataSource& source);

/// A transform as torchvision's v2 has it: "v2.RandomCrop(size=32, padding=4)".
std::string image_transform(const Value& transform);

/// The lines that make train_data and eval_data by a call each: "load_digits(\"train\")".
std::vector<std::string> calls(const std::string& train, const std::string& eval);

}  // namespace trainrun::python
