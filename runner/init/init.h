#pragma once

#include <string>
#include <vector>

#include "registry/catalog.h"
#include "runner/init/draft.h"

namespace trainrun {

/// Looks at the data, whatever kind they are, and drafts a recipe for them. Writes nothing. Throws Error, DataError, which
/// say what to do where the data do not tell enough.
Draft draft_recipe(const InitOptions& options);

/// What `init` did.
struct InitReport {
  Draft draft;
  std::vector<std::string> written;  // files
  int64_t parameters = 0;
  int64_t steps = 0;  // 0: not known
  int64_t batch_size = 0;
  int64_t memory = 0;  // bytes of a step
};

/// Drafts a recipe with a batch that fits into this machine's memory, checks it as `validate` and `explain` do, and writes
/// it to `options.output`, with the files that it names. Throws Error where that is there already, unless `replace`.
InitReport write_recipe(const InitOptions& options, Catalog& catalog, bool replace);

/// For people.
std::string to_text(const InitReport& report, const InitOptions& options);

}  // namespace trainrun
