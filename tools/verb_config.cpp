#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>

#include "registry/formats/files/file_io.h"
#include "runner/recipe/yaml.h"
#include "tools/verbs.h"

namespace trainrun {
namespace {

/// What is wrong with an answer; "" if nothing is.
using Check = std::function<std::string(const std::string& answer)>;

/// The input ended where an answer was due.
class EndOfInput : public Error {
 public:
  using Error::Error;
};

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

/// Asks on standard error, so that standard output holds the answers' YAML alone, and reads standard input.
class Interview {
 public:
  /// Asks until `check` has nothing to say. An empty answer is `preset`; without one it is asked for again.
  std::string ask(const std::string& question, const std::optional<std::string>& preset, const Check& check) {
    while (true) {
      std::fprintf(stderr, "%s%s: ", question.c_str(), preset ? (" [" + *preset + "]").c_str() : "");
      std::string answer;
      if (!std::getline(std::cin, answer)) {
        throw EndOfInput("trainrun config: the input ended before every question had an answer; nothing is written");
      }
      answer = trimmed(answer);
      if (answer.empty() && preset) answer = *preset;
      const std::string fault = answer.empty() ? "an answer is needed" : check(answer);
      if (fault.empty()) return answer;
      std::fprintf(stderr, "  %s\n", fault.c_str());
    }
  }

  int64_t ask_number(const std::string& question, std::optional<int64_t> preset, int64_t least, int64_t most) {
    const std::string answer =
        ask(question, preset ? std::optional(std::to_string(*preset)) : std::nullopt, [&](const std::string& text) {
          const auto number = parse_integer(text);
          if (!number) return "expected a whole number, found '" + text + "'";
          if (*number < least) return "at least " + std::to_string(least);
          return *number > most ? "at most " + std::to_string(most) : std::string();
        });
    return *parse_integer(answer);
  }

  bool ask_yes_no(const std::string& question, bool preset) {
    const auto check = [](const std::string& answer) {
      const std::string word = lower(answer);
      const bool known = word == "yes" || word == "no" || word == "y" || word == "n";
      return known ? std::string() : std::string("answer yes or no");
    };
    return lower(ask(question, preset ? "yes" : "no", check))[0] == 'y';
  }

  struct Choice {
    const char* name;
    const char* what;
    const char* fault = "";  // why it cannot be had
  };

  /// The name of one of `choices`, given by name or by number from 1; the first by default.
  std::string ask_choice(const std::string& question, const std::vector<Choice>& choices) {
    std::fprintf(stderr, "%s\n", question.c_str());
    std::vector<std::string> names;
    for (const Choice& choice : choices) {
      names.emplace_back(choice.name);
      if (*choice.fault) continue;
      std::fprintf(stderr, "  %zu  %-14s %s\n", names.size(), choice.name, choice.what);
    }
    const auto find = [&](const std::string& answer) -> const Choice* {
      const auto number = parse_integer(answer);
      const bool counts = number && *number >= 1 && *number <= static_cast<int64_t>(choices.size());
      if (counts) return &choices[static_cast<size_t>(*number) - 1];
      const auto named = std::find_if(choices.begin(), choices.end(),
                                      [&](const Choice& choice) { return lower(choice.name) == lower(answer); });
      return named == choices.end() ? nullptr : &*named;
    };
    const std::string answer = ask("Number or name", choices.front().name, [&](const std::string& text) {
      const Choice* choice = find(text);
      return choice ? choice->fault : "there is no '" + text + "'" + suggestion(text, names);
    });
    return find(answer)->name;
  }
};

/// The recipe's keys, in the order of the questions.
class Fragment {
 public:
  void set(const std::string& key, Value value) { keys_.set(key, {}, std::move(value)); }
  void set(const std::string& key, const std::string& text) { set(key, Value::scalar(text, /*quoted=*/true, {})); }
  void set(const std::string& key, int64_t number) {
    set(key, Value::scalar(std::to_string(number), /*quoted=*/false, {}));
  }
  std::string text() const {
    return "# By trainrun config. A recipe takes it with `base: FILE`; the recipe's own keys come after.\n" +
           to_yaml(keys_);
  }

 private:
  Value keys_ = Value::map({}, {});
};

constexpr int64_t kMostMachines = 100000;
constexpr int64_t kMostProcesses = 1000000;

void ask_machines(Interview& interview, Fragment& fragment) {
  const int64_t machines = interview.ask_number("How many machines", 1, 1, kMostMachines);
  if (machines > 1) {
    fragment.set("machine_rank",
                 interview.ask_number("Which of them is this machine, counted from 0", 0, 0, machines - 1));
    fragment.set(
        "main_process_ip", interview.ask("Name or IP address of machine 0", std::nullopt, [](const std::string& text) {
          const bool is_word = text.find_first_of(" \t:/") == std::string::npos || text.find("::") != std::string::npos;
          return is_word ? std::string() : "expected a host name or an IP address, found '" + text + "'";
        }));
    fragment.set("main_process_port",
                 interview.ask_number("A free port on it, where the processes connect", 29500, 1, 65535));
  }
  fragment.set("num_machines", machines);
  while (true) {
    const int64_t processes =
        interview.ask_number("How many processes, over all machines", 2 * machines, machines, kMostProcesses);
    if (processes % machines == 0) return fragment.set("num_processes", processes);
    std::fprintf(stderr, "  %lld processes cannot be divided evenly over %lld machines\n",
                 static_cast<long long>(processes), static_cast<long long>(machines));
  }
}

std::string ask_all() {
  Interview interview;
  Fragment fragment;
  const std::string type = interview.ask_choice(
      "How should the job be distributed?", {{"NO", "one process"},
                                             {"MULTI_CPU", "several processes, each with the whole model, on CPUs"},
                                             {"MULTI_GPU", "the same, each on a GPU"},
                                             {"FSDP", "several processes, with the model's state sharded over them"}});
  fragment.set("distributed_type", type);
  if (type != "NO") ask_machines(interview, fragment);
  if (type == "MULTI_CPU") {
    fragment.set("device", "cpu");
  } else if (type != "MULTI_GPU") {
    const bool cpu = interview.ask_yes_no("Stay on the CPU, even if there is a GPU", false);
    fragment.set("device", cpu ? "cpu" : "auto");
  }
  if (type == "FSDP") {
    const std::string strategy = interview.ask_choice(
        "What should be sharded?", {{"FULL_SHARD", "parameters, gradients and optimizer state (ZeRO's stage 3)"},
                                    {"SHARD_GRAD_OP", "gradients and optimizer state (stage 2)"},
                                    {"NO_SHARD", "nothing: as MULTI_GPU or MULTI_CPU"}});
    fragment.set("sharding", Value::map({{"strategy", {}, Value::scalar(strategy, /*quoted=*/true, {})}}, {}));
  }
  fragment.set("mixed_precision",
               interview.ask_choice("Which precision should the layers compute in?",
                                    {{"no", "float32"},
                                     {"bf16", "bfloat16"},
                                     {"fp16", "float16, the loss scaled"},
                                     {"fp8", "",
                                      "fp8 is not available: LibTorch has its products only on recent GPUs; "
                                      "choose bf16"}}));
  return fragment.text();
}

/// Asks whether a file that is there may be replaced.
bool may_write(const std::string& path) {
  std::error_code unreadable;  // writing says what is wrong
  if (!std::filesystem::exists(path, unreadable)) return true;
  return Interview().ask_yes_no(path + " is there already. Replace it", false);
}

int config(const std::string& output) {
  try {
    if (!output.empty() && !may_write(output)) {
      std::fprintf(stderr, "%s stays as it is\n", output.c_str());
      return kWrongInput;
    }
    const std::string text = ask_all();
    if (output.empty()) {
      std::fputs(text.c_str(), stdout);
    } else {
      write_file_atomically(output, text);
      std::fprintf(stderr, "%s is written; a recipe takes it with base: %s\n", output.c_str(), output.c_str());
    }
    return kDone;
  } catch (const EndOfInput& end) {
    std::fprintf(stderr, "\n%s\n", end.what());
    return kWrongInput;
  }
}

}  // namespace

void add_config(CLI::App& app, Program& program) {
  CLI::App* verb =
      app.add_subcommand("config", "ask how to distribute a job, and write the answers as a recipe's keys");
  const auto output = std::make_shared<std::string>();
  verb->add_option("--output", *output, "write them here; standard output by default")->type_name("FILE");
  verb->callback([&program, output] { program.exit_code = config(*output); });
}

}  // namespace trainrun
