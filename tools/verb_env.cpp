#include <cstdio>

#include "runner/base/text.h"
#include "runner/report/environment.h"
#include "tools/verbs.h"

namespace trainrun {

void add_env(CLI::App& app, Program& program) {
  CLI::App* verb = app.add_subcommand("env", "print versions, devices and libraries, to be pasted into a bug report");
  verb->callback([&program] {
    TextTable table({TextTable::Align::kLeft, TextTable::Align::kLeft});
    for (const auto& [name, value] : describe_environment()) table.add({name, value});
    std::fputs(table.to_string().c_str(), stdout);
    program.exit_code = kDone;
  });
}

}  // namespace trainrun
