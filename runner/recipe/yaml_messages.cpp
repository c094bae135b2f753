#include "runner/recipe/yaml_messages.h"

#include <algorithm>
#include <string>

#include "registry/language/utf8.h"
#include "runner/recipe/yaml_scan.h"

namespace trainrun {
namespace {

/// "b:2" of a line "  b:2": YAML takes it for one word. "" for other lines.
std::string key_without_space(std::string_view line) {
  const size_t start = line.find_first_not_of(" -");
  if (start == std::string_view::npos) return "";
  const std::string_view word = line.substr(start, line.find_first_of(" #", start) - start);
  const size_t colon = word.find(':');
  const bool slip = colon != std::string_view::npos && colon > 0 && colon + 1 < word.size() &&
                    word.find_first_of("\"'{[/") == std::string_view::npos;
  return slip ? std::string(word) : "";
}

std::string character_at(const YamlText& source, size_t offset) {
  if (offset >= source.text().size()) return "the end";
  size_t end = offset;
  next_code_point(source.text(), end);
  return "'" + source.text().substr(offset, end - offset) + "'";
}

/// yaml-cpp's messages, in words that say what to do.
std::string explain(const std::string& message, const YamlText& source, size_t offset, const Place* open_flow) {
  namespace msg = YAML::ErrorMsg;
  const std::string character = character_at(source, offset);
  const std::string opened = open_flow ? " that opens on line " + std::to_string(open_flow->line) : "";
  if (message == msg::END_OF_MAP || message == msg::END_OF_SEQ) {
    const std::string_view before =
        source.line(source.line_of(offset)).substr(0, offset - source.line_start(source.line_of(offset)));
    const bool begins_line = before.find_first_not_of(' ') == std::string_view::npos;
    return begins_line ? "this line fits nothing above it; check its indentation"
                       : "this goes on after a value that is complete; is a quote or a comma missing?";
  }
  if (message == msg::END_OF_MAP_FLOW) return "expected ',' or '}' in the mapping" + opened + ", found " + character;
  if (message == msg::END_OF_SEQ_FLOW) return "expected ',' or ']' in the list" + opened + ", found " + character;
  if (message == msg::FLOW_END) return character + " closes nothing here";
  if (message == msg::BLOCK_ENTRY) return "a list cannot begin here; begin it on the next line, or write [a, b]";
  if (message == msg::MAP_VALUE)
    return "no mapping can begin here; check the indentation, and quote a text that holds ': '";
  if (message == msg::MAP_KEY) return "no key can stand here; check the indentation";
  if (message == msg::UNKNOWN_TOKEN) return "a plain string cannot begin with " + character + "; put it in quotes";
  if (message == msg::EOF_IN_SCALAR) return "a quote is never closed";
  if (message == msg::TAB_IN_INDENTATION) return "a tab in the indentation; YAML wants spaces";
  if (message.starts_with(msg::UNKNOWN_ANCHOR)) {
    const size_t end = source.text().find_first_of(" \n\t,]}", offset);
    const std::string alias = source.text().substr(offset, end - offset);
    return "no anchor &" + alias.substr(std::min<size_t>(1, alias.size())) + " before this alias";
  }
  if (message.starts_with(msg::INVALID_ESCAPE)) {
    return "unknown escape in a text in double quotes; use single quotes, or write \\\\ for a backslash";
  }
  return message;
}

}  // namespace

size_t offset_of(const YAML::Mark& mark, const YamlText& source) {
  return mark.pos < 0 ? 0 : std::min(static_cast<size_t>(mark.pos), source.text().size());
}

Problem syntax_problem(const YAML::Exception& error, const YamlText& source, const Place* open_flow) {
  namespace msg = YAML::ErrorMsg;
  const size_t offset = offset_of(error.mark, source);
  const bool in_flow = error.msg == msg::END_OF_MAP_FLOW || error.msg == msg::END_OF_SEQ_FLOW;
  if (in_flow && offset > 0 && source.at(offset - 1, "${")) {
    return {source.place(offset - 1), "", "within { } or [ ], a text with ${…} must be in quotes: \"${…}\""};
  }
  if (error.msg != msg::EOF_IN_SCALAR) {
    const auto unclosed = find_unclosed(source);
    if (unclosed && unclosed->place.line <= source.place(offset).line) return *unclosed;
  }
  const size_t line = source.line_of(offset);
  const std::string_view indentation = source.line(line).substr(0, source.line(line).find_first_not_of(" \t"));
  if (!in_flow && indentation.find('\t') != std::string_view::npos) {
    return {source.place(source.line_start(line) + indentation.find('\t')), "",
            "a tab in the indentation; YAML wants spaces"};
  }
  if (error.msg == msg::MAP_VALUE) {
    for (const size_t suspect : {line, line == 0 ? 0 : line - 1}) {
      const std::string word = key_without_space(source.line(suspect));
      if (word.empty()) continue;
      const size_t start = source.line_start(suspect) + source.line(suspect).find(word);
      return {source.place(start), "", "there is no space after the colon of '" + word + "'"};
    }
  }
  return {source.place(offset), "", explain(error.msg, source, offset, open_flow)};
}

}  // namespace trainrun
