#include "tools/accelerate_option.h"

#include <cstdio>

namespace trainrun {

void add_accelerate_option(CLI::App& verb, std::string& path) {
  verb.add_option("--accelerate-config", path,
                  "an Accelerate configuration file; it is applied to the recipe before the overrides")
      ->type_name("FILE");
}

AccelerateConfig read_accelerate_option(const std::string& path) {
  return path.empty() ? AccelerateConfig() : read_accelerate_config(path);
}

void print_notes(const AccelerateConfig& config, const Program& program) {
  if (program.quiet) return;
  for (const Problem& note : config.notes) std::fprintf(stderr, "note: %s\n", note.to_string().c_str());
}

}  // namespace trainrun
