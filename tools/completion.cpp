#include <algorithm>

#include "registry/language/error.h"
#include "tools/command_tree.h"

namespace trainrun {
namespace {

std::vector<const VerbEntry*> all_verbs(const VerbEntry& program) {
  std::vector<const VerbEntry*> verbs = {&program};
  for (size_t i = 0; i < verbs.size(); ++i) {
    for (const VerbEntry& below : verbs[i]->verbs) verbs.push_back(&below);
  }
  return verbs;
}

/// The verbs below, the options, and the values of the argument that has few.
std::vector<std::string> words_after(const VerbEntry& verb) {
  std::vector<std::string> words;
  for (const VerbEntry& below : verb.verbs) words.push_back(below.words.back());
  for (const OptionEntry& option : verb.options) {
    const std::vector<std::string>& own = option.is_argument ? option.choices : option.names;
    words.insert(words.end(), own.begin(), own.end());
  }
  return words;
}

/// "--format|-f": a pattern of case.
std::string pattern_of(const OptionEntry& option) { return join(option.names, "|"); }

bool takes_overrides(const VerbEntry& verb) {
  return std::ranges::any_of(
      verb.options, [](const OptionEntry& option) { return option.is_argument && option.names[0] == "overrides"; });
}

/// "optimizer= training.max_steps=".
std::string joined_keys(const std::vector<std::string>& keys) {
  std::string text;
  for (const std::string& key : keys) text += (text.empty() ? "" : " ") + key + "=";
  return text;
}

std::string bash_cases(const std::vector<const VerbEntry*>& verbs) {
  std::string text = "  case \"$verb\" in\n";
  for (const VerbEntry* verb : verbs) {
    std::string values;
    for (const OptionEntry& option : verb->options) {
      if (option.is_argument || !option.takes_value) continue;
      const std::string found = option.choices.empty() ? "files=yes" : "words=\"" + join(option.choices, " ") + "\"";
      values += "        " + pattern_of(option) + ") " + found + "; is_value=yes ;;\n";
    }
    text += "    \"" + join(verb->words, " ") + "\")\n";
    if (!values.empty()) text += "      case \"$previous\" in\n" + values + "      esac\n";
    const std::string more = takes_overrides(*verb) ? " $keys" : "";
    text += "      [[ -n $is_value ]] || words=\"" + join(words_after(*verb), " ") + more + "\" ;;\n";
  }
  return text + "  esac\n";
}

/// Which verb the line is of: the longest chain of its words that is one; of a recipe alone, run.
std::string bash_verb(const std::vector<const VerbEntry*>& verbs) {
  std::string known;
  for (const VerbEntry* verb : verbs) known += "|" + join(verb->words, " ");
  return R"(  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} verb= files= words= is_value= i
  local known="|)" +
         known + R"(|"
  for ((i = 1; i < COMP_CWORD; i++)); do
    [[ ${COMP_WORDS[i]} == -* ]] && continue
    local longer="${verb:+$verb }${COMP_WORDS[i]}"
    [[ $known == *"|$longer|"* ]] && verb=$longer
  done
  [[ -z $verb && $COMP_CWORD -gt 1 && ${COMP_WORDS[1]} != -* ]] && verb=run
  [[ $previous == = ]] && previous=${COMP_WORDS[COMP_CWORD - 2]}
)";
}

std::string bash_script(const VerbEntry& program, const std::vector<std::string>& keys) {
  const std::vector<const VerbEntry*> verbs = all_verbs(program);
  return "# Completion of trainrun for bash. In ~/.bashrc: source <(trainrun completion bash)\n_trainrun() {\n" +
         bash_verb(verbs) + "  local keys=\"" + joined_keys(keys) + "\"\n" + bash_cases(verbs) +
         R"(  COMPREPLY=($(compgen -W "$words" -- "$current"))
  [[ -n $files || $current != -* && -z $is_value ]] && COMPREPLY+=($(compgen -f -- "$current"))
  [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2> /dev/null
  return 0
}
complete -o filenames -o bashdefault -F _trainrun trainrun
)";
}

std::string zsh_script(const VerbEntry& program, const std::vector<std::string>& keys) {
  const std::string bash = bash_script(program, keys);
  return "#compdef trainrun\n# Completion of trainrun for zsh. In ~/.zshrc, after compinit: source <(trainrun "
         "completion zsh)\n"
         "autoload -U +X bashcompinit && bashcompinit\n" +
         bash.substr(bash.find('\n') + 1);
}

/// 'text', for fish.
std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return result + "'";
}

std::string fish_option(const OptionEntry& option, const std::string& condition) {
  std::string line = "complete -c trainrun" + condition;
  if (option.is_argument) {
    if (option.choices.empty()) return "";
    return line + " -a " + quoted(join(option.choices, " ")) + "\n";
  }
  for (const std::string& name : option.names) {
    line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  }
  if (!option.choices.empty()) {
    line += " -x -a " + quoted(join(option.choices, " "));
  } else if (option.takes_value) {
    line += " -r";
  }
  return line + " -d " + quoted(option.description) + "\n";
}

std::string fish_script(const VerbEntry& program, const std::vector<std::string>& keys) {
  std::string text =
      "# Completion of trainrun for fish. As ~/.config/fish/completions/trainrun.fish: trainrun completion fish\n";
  for (const VerbEntry* verb : all_verbs(program)) {
    std::string condition = " -n '__fish_use_subcommand'";
    if (!verb->words.empty()) condition = " -n '__fish_seen_subcommand_from " + verb->words.back() + "'";
    for (const VerbEntry& below : verb->verbs) {
      text +=
          "complete -c trainrun" + condition + " -a " + below.words.back() + " -d " + quoted(below.description) + "\n";
    }
    for (const OptionEntry& option : verb->options) text += fish_option(option, verb->words.empty() ? "" : condition);
    if (takes_overrides(*verb)) text += "complete -c trainrun" + condition + " -a " + quoted(joined_keys(keys)) + "\n";
  }
  return text;
}

}  // namespace

std::string completion_script(const VerbEntry& program, const std::vector<std::string>& keys,
                              const std::string& shell) {
  if (shell == "bash") return bash_script(program, keys);
  return shell == "zsh" ? zsh_script(program, keys) : fish_script(program, keys);
}

}  // namespace trainrun
