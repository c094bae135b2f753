#pragma once

#include "tools/verbs.h"

namespace trainrun {

/// Lets the verbs that run something fetch what recipes name and no cache has, which validate, explain and others do
/// not. What is fetched is shown on standard error, unless --quiet is given.
void add_network(CLI::App& app, Program& program);

}  // namespace trainrun
