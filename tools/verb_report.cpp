#include <unistd.h>

#include <cstdio>
#include <memory>

#include "registry/formats/files/file_io.h"
#include "runner/base/text.h"
#include "runner/report/report_server.h"
#include "runner/report/run_report.h"
#include "tools/number_checks.h"
#include "tools/verbs.h"

namespace trainrun {
namespace {

struct ReportArguments {
  std::vector<std::string> runs;
  std::string output = "report.html";
  bool evaluate = false;
  bool watch = false;
  int port = 0;
};

RunReport report_of(const ReportArguments& arguments, Program& program) {
  try {
    return read_report(arguments.runs, program.catalog);
  } catch (const RecipeError&) {
    throw;  // each fault has its place
  } catch (const Error& error) {
    throw CLI::ValidationError(error.what());
  }
}

/// Until the program is ended.
[[noreturn]] void serve(const ReportArguments& arguments, Program& program) {
  const ReportServer server(arguments.port, [&] { return read_report(arguments.runs, program.catalog); });
  std::printf("http://localhost:%d/ shows the report, and follows runs that go on; Ctrl-C ends it\n", server.port());
  std::fflush(stdout);
  while (true) ::pause();
}

}  // namespace

void add_report(CLI::App& app, Program& program) {
  CLI::App* verb = app.add_subcommand(
      "report", "write a page about runs: curves, what differs, and what their models get wrong; one HTML file");
  const auto arguments = std::make_shared<ReportArguments>();
  verb->add_option("runs", arguments->runs, "folders of runs")->required();
  verb->add_option("--output,-o", arguments->output, "the HTML file to write; report.html by default");
  verb->add_flag("--evaluate", arguments->evaluate,
                 "also have the best checkpoint of each run (else its newest) predict the evaluation data: classes, "
                 "confusion matrix, curves, errors, the worst mistakes");
  CLI::Option* watch = verb->add_flag(
      "--watch", arguments->watch, "serve the page on this machine only, at 127.0.0.1, and update it while runs train");
  verb->add_option("--port", arguments->port, "with --watch: the port (default: any that is free)")
      ->check(whole_between(1, 65535))
      ->needs(watch);
  verb->callback([&program, arguments] {
    RunReport report = report_of(*arguments, program);
    if (arguments->watch && arguments->evaluate) {
      throw CLI::ValidationError(
          "--watch follows figures, and --evaluate makes the models predict: leave one of them out");
    }
    if (arguments->watch) serve(*arguments, program);
    for (ReportedRun& run : report.runs) {
      if (!arguments->evaluate) break;
      TrainedRun trained(find_trained(run.record.path), {}, program.catalog);
      run.evaluation = evaluate_samples(trained);
    }
    const std::string page = to_html(report);
    write_file_atomically(arguments->output, page);
    if (program.quiet) return;
    for (const std::string& note : report.notes) std::fprintf(stderr, "note: %s\n", note.c_str());
    std::printf("%s: %zu runs, %s\n", arguments->output.c_str(), report.runs.size(),
                bytes_text(static_cast<double>(page.size())).c_str());
  });
}

}  // namespace trainrun
