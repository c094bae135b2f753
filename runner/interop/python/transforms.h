#pragma once

#include <string>
#include <vector>

#include "runner/interop/python/data.h"
#include "runner/interop/python/source_file.h"
#include "runner/recipe/recipe.h"

namespace trainrun::python {

/// What becomes of samples between the data set and the network.
struct Transforms {
  std::vector<std::string> statements;  // of `train`, on train_data and eval_data, which are dicts of tensors
  std::string train_pipeline;           // of each training image: "transforms.Compose([…])"; "": none
  std::string eval_pipeline;            // of each evaluation image
  std::string train_batch;              // a function that changes a training batch: "add_noise(batch)"; "": none
  std::string eval_batch;
};

/// Whether a transform draws random numbers, and changes no size: a comparison leaves such out.
bool draws_and_keeps_size(const std::string& type);

Transforms write_transforms(const Recipe& recipe, Data& data, const DatasetInfo& info, SourceFile& file);

}  // namespace trainrun::python
