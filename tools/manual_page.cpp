#include <array>
#include <cstdio>

#include "registry/formats/text/unicode.h"
#include "registry/language/error.h"
#include "tools/command_tree.h"

namespace trainrun {
namespace {

/// Text as groff reads it: nothing in it is a request, dashes can be copied, and characters beyond ASCII are named.
std::string plain(const std::string& text) {
  std::string result;
  bool begins_line = true;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = unicode::next(text, at);
    if (begins_line && (c == U'.' || c == U'\'')) result += "\\&";
    begins_line = c == U'\n';
    if (c == U'\\') {
      result += "\\e";
    } else if (c == U'-') {
      result += "\\-";
    } else if (c < 0x80) {
      result += static_cast<char>(c);
    } else {
      std::array<char, 16> name{};
      std::snprintf(name.data(), name.size(), "\\[u%04X]", static_cast<unsigned>(c));
      result += name.data();
    }
  }
  return result;
}

std::string bold(const std::string& text) { return "\\fB" + plain(text) + "\\fR"; }
std::string italic(const std::string& text) { return "\\fI" + plain(text) + "\\fR"; }

std::string heading_of(const OptionEntry& option) {
  if (option.is_argument) return italic(option.names[0]);
  std::string text;
  for (const std::string& name : option.names) text += (text.empty() ? "" : ", ") + bold(name);
  if (!option.takes_value) return text;
  return text + " " + (option.choices.empty() ? italic("VALUE") : plain(join(option.choices, "|")));
}

std::string options_of(const VerbEntry& verb) {
  std::string text;
  for (const OptionEntry& option : verb.options) {
    text += ".TP\n" + heading_of(option) + "\n" + plain(option.description) + "\n";
  }
  return text;
}

std::string synopsis_of(const VerbEntry& verb) {
  std::string text = bold("trainrun " + join(verb.words, " "));
  for (const OptionEntry& option : verb.options) {
    if (!option.is_argument) continue;
    const std::string name = italic(option.names[0]) + (option.repeats ? " ..." : "");
    text += option.is_required ? " " + name : " [" + name + "]";
  }
  return text + " [" + italic("options") + "]";
}

std::string verb_sections(const VerbEntry& verb) {
  std::string text = ".SS " + synopsis_of(verb) + "\n" + plain(verb.description) + "\n" + options_of(verb);
  for (const VerbEntry& below : verb.verbs) text += verb_sections(below);
  return text;
}

}  // namespace

std::string manual_page(const VerbEntry& program, const std::string& version) {
  std::string text = ".TH TRAINRUN 1 \"\" " + plain("\"trainrun " + version + "\"") + "\n.SH NAME\ntrainrun \\- " +
                     plain(program.description) + "\n.SH SYNOPSIS\n" + bold("trainrun") + " " + italic("recipe.yaml") +
                     " [" + italic("key=value") + " ...] [" + italic("options") + "]\n.br\n" + bold("trainrun") + " " +
                     italic("verb") + " ... [" + italic("options") + "]\n.SH OPTIONS\n" + options_of(program) +
                     ".SH VERBS\n";
  for (const VerbEntry& verb : program.verbs) text += verb_sections(verb);
  text += ".SH EXIT STATUS\n";
  for (const auto& [code, meaning] : {std::pair("0", "done"),
                                      {"1", "the job failed"},
                                      {"2", "the recipe or the command line is wrong, and nothing was done"},
                                      {"128+N", "stopped by signal N"}}) {
    text += ".TP\n" + bold(code) + "\n" + plain(meaning) + "\n";
  }
  return text;
}

}  // namespace trainrun
