#pragma once

#include <string>

#include "runner/init/draft.h"
#include "runner/init/table_sight.h"
#include "runner/init/table_target.h"

namespace trainrun {

/// Where the rows of a table lie.
struct TableFiles {
  std::string train;
  std::string eval;  // "": a part of the rows of `train` is held out
  std::string test;  // "": there is none, or `eval` is it
};

/// A recipe that learns to predict `target` from the other columns.
Draft draft_table(const TableSight& table, const TableTarget& target, const TableFiles& files,
                  const InitOptions& options);

/// The layers of a net for rows of numbers, of which there are `rows` to learn from.
std::string mlp_layers(int64_t rows, int64_t outputs, const std::string& outputs_comment);
/// From dataloader to callbacks: what a net of `mlp_layers` learns well with.
std::string mlp_training(int64_t rows, int64_t batch_size);
int64_t mlp_batch_size(int64_t rows);

}  // namespace trainrun
