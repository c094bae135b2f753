#pragma once

#include <map>
#include <string>

#include "registry/kinds/dataset.h"
#include "registry/language/value.h"
#include "runner/distributed/process_group.h"

namespace trainrun {

/// What must be alike on all ranks, as text, by key: {"optimizer.lr", "0.1"}.
using Facts = std::map<std::string, std::string>;

/// Every value of a resolved recipe, by its path, and the versions of this program and of LibTorch; without what ranks
/// may have each for themselves: where they run and meet, threads, output, the paths of data, weights and plugins.
Facts facts_of_recipe(const Value& resolved);

/// How many samples `data` has, what their fields are, and a digest of the first, the middle and the last one.
/// `name`: "dataset.train".
Facts facts_of_data(const Dataset& data, const std::string& name);

/// "rank 1's optimizer.lr is 0.01, rank 0's is 0.1": each key that differs, in a line, the first few; empty: none.
std::string difference(const Facts& own, const Facts& of_main, int64_t rank);

/// Throws Error, the same on all ranks, where one has other facts than rank 0. All ranks call it.
void require_agreement(ProcessGroup& group, const Facts& facts);

}  // namespace trainrun
