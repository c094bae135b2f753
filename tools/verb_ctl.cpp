#include <cstdio>
#include <filesystem>
#include <memory>

#include "runner/control/control.h"
#include "runner/control/control_client.h"
#include "tools/verbs.h"

namespace trainrun {
namespace {

struct CtlArguments {
  std::string run;
  std::vector<std::string> words;
};

std::string line_of_words(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + word;
  return line;
}

int ask_and_print(const CtlArguments& arguments) {
  const std::string line = line_of_words(arguments.words);
  try {
    parse_command(line);  // a mistake is told without the run
    if (!std::filesystem::is_directory(arguments.run)) throw Error(arguments.run + " is not the folder of a run");
  } catch (const Error& error) {
    throw CLI::ValidationError(error.what());
  }
  const ControlAnswer answer = ask_run(arguments.run, line);
  std::string text = answer.text;
  if (!text.ends_with('\n')) text += '\n';
  std::fputs(text.c_str(), answer.is_done ? stdout : stderr);
  return answer.is_done ? kDone : kJobFailed;
}

}  // namespace

void add_ctl(CLI::App& app, Program& program) {
  CLI::App* verb = app.add_subcommand("ctl", "show where a running job stands; save, stop, profile or change it");
  const auto arguments = std::make_shared<CtlArguments>();
  verb->add_option("run", arguments->run, "the folder of the run")->required();
  verb->add_option("command", arguments->words,
                   "status (JSON), metrics (Prometheus' text), save, stop, profile STEPS, or set KEY=VALUE …, for "
                   "optimizer.lr, logging.every_steps, checkpoint.every, evaluation.every")
      ->required();
  verb->callback([&program, arguments] { program.exit_code = ask_and_print(*arguments); });
}

}  // namespace trainrun
