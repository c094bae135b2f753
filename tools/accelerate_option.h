#pragma once

#include <string>

#include "runner/interop/accelerate_config.h"
#include "tools/verbs.h"

namespace trainrun {

/// Adds `--accelerate-config FILE`; empty where it is not given.
void add_accelerate_option(CLI::App& verb, std::string& path);

/// What the file of that option says; nothing for "".
AccelerateConfig read_accelerate_option(const std::string& path);

/// Its notes, on standard error; nothing with --quiet.
void print_notes(const AccelerateConfig& config, const Program& program);

}  // namespace trainrun
