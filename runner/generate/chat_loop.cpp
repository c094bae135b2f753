#include "runner/generate/chat_loop.h"

#include <istream>

namespace trainrun {
namespace {

using nlohmann::ordered_json;

std::string stripped(const std::string& line) {
  const size_t begin = line.find_first_not_of(" \t\r");
  return begin == std::string::npos ? "" : line.substr(begin, line.find_last_not_of(" \t\r") + 1 - begin);
}

}  // namespace

void converse(Generator& generator, PromptMaker& prompts, const ChatTerminal& terminal) {
  ordered_json messages = prompts.beginning();
  const std::optional<int64_t> most = generator.next_token().most_tokens();
  bool was_told = false;  // that the beginning is not seen any more
  std::string line;
  for (terminal.ask(); std::getline(terminal.input, line); terminal.ask()) {
    line = stripped(line);
    if (line.empty()) continue;
    if (line == "/exit") return;
    if (line == "/reset") {
      messages = prompts.beginning();
      was_told = false;
      terminal.note("the conversation begins anew");
      continue;
    }
    messages.push_back({{"role", "user"}, {"content", line}});
    const Prompt prompt = prompts.of_messages(messages, nullptr, "the conversation");
    const auto length = static_cast<int64_t>(prompt.tokens.size());
    if (most && length >= *most && !was_told) {
      terminal.note("the conversation has " + std::to_string(length) + " tokens, and the model sees the last " +
                    std::to_string(*most) + " only; /reset begins anew");
      was_told = true;
    }
    const GeneratedText answer = generator.run({prompt}, 1, terminal.write).at(0);
    terminal.write("\n");
    if (answer.finish == "length") {
      terminal.note("the answer was cut off after " + std::to_string(answer.tokens.size()) +
                    " tokens (--max-new-tokens)");
    }
    messages.push_back({{"role", "assistant"}, {"content", answer.text}});
  }
}

}  // namespace trainrun
