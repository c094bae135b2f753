#include "runner/interop/python/data.h"

#include <nlohmann/json.hpp>

#include <algorithm>

#include "runner/interop/python/expression.h"

namespace trainrun::python {
namespace {

using WriteData = Data (*)(const DataSource&);

const std::map<std::string, WriteData>& data_writers() {
  static const std::map<std::string, WriteData> table = {{"Digits", digits_data},
                                                         {"MNIST", idx_data},
                                                         {"FashionMNIST", idx_data},
                                                         {"KMNIST", idx_data},
                                                         {"CSV", table_data},
                                                         {"Windows", windows_data},
                                                         {"TensorFile", tensor_file_data},
                                                         {"TinyShakespeare", language_data},
                                                         {"TextLM", language_data},
                                                         {"CIFAR10", cifar_data},
                                                         {"ImageFolder", image_folder_data},
                                                         {"SegmentationFolder", segmentation_data},
                                                         {"OxfordIIITPet", pets_data},
                                                         {"MRPC", mrpc_data},
                                                         {"TextClassification", text_classification_data},
                                                         {"Chat", chat_data},
                                                         {"PreferencePairs", preference_data}};
  return table;
}

}  // namespace

void DataSource::allow(const Component<DatasetKind>& set, const std::set<std::string>& known) const {
  for (const auto& entry : set.written.entries()) {
    if (entry.key == "type" || known.contains(entry.key)) continue;
    file.refuse(
        entry.key_place, set.path + "." + entry.key,
        "a program is not written for this parameter of " + set.type + "; leave it out, or prepare the data so");
  }
}

std::vector<std::string> calls(const std::string& train, const std::string& eval) {
  std::vector<std::string> lines = {"train_data = " + train};
  if (!eval.empty()) lines.push_back("eval_data = " + eval);
  return lines;
}

Data write_data(const Recipe& recipe, const std::vector<std::string>& fields, SourceFile& file) {
  const auto& train = recipe.dataset.train;
  const Component<DatasetKind>* eval = nullptr;
  const bool is_evaluated = recipe.evaluation.every.has_value();  // else the program would read data for nothing
  if (is_evaluated && recipe.dataset.eval && !recipe.dataset.eval->sets.empty()) {
    const auto& sets = recipe.dataset.eval->sets;
    eval = &sets[0].data;
    if (sets.size() > 1) {
      file.refuse(sets[1].data.place, sets[1].data.path, "one set of evaluation data is written; leave the others out");
    }
    if (eval->type != train.type) {
      file.refuse(eval->place, eval->path, "training and evaluation data of different types are not written");
      return {};
    }
  }
  if (recipe.dataset.fold && train.type != "CSV") {
    file.refuse(train.place, "dataset.fold", "folds are written for data of type CSV alone");
  }
  const auto writer = data_writers().find(train.type);
  if (writer == data_writers().end()) {
    file.refuse(train.place, train.path,
                "no program is written for data of type " + train.type +
                    "; save the data as a TensorFile or a CSV, and name that");
    return {};
  }
  return writer->second({recipe, train, eval, fields, file});
}

}  // namespace trainrun::python
